-- Has nothing to go on with.
return { start = function() end }
