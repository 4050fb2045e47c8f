-- Has no function main.
return { start = function() end }
