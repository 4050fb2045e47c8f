-- crawler.lua - fan-out with a limit: one process per page, and at most `limit` pages at a time.
local crawler = {}

-- Runs in the process of one page. Returns the links of the page, or fails. The process that monitors the page's
-- process gets the links or the error.
local function visit(page)
  return require("site").fetch(page)
end

-- Crawls from `start` with at most `limit` pages at a time. Returns the pages found, the errors by page, and the
-- largest number of pages that were fetched at once.
function crawler.crawl(start, limit)
  local found, failed, peak = {}, {}, 0
  local queue, seen, busy, busy_count = { start }, { [start] = true }, {}, 0
  while #queue > 0 or busy_count > 0 do
    while #queue > 0 and busy_count < limit do
      local page = table.remove(queue, 1)
      busy[process.spawn_monitored(visit, page)] = page
      busy_count = busy_count + 1
    end
    peak = math.max(peak, busy_count)
    local ended = process.receive { event = "exit" }
    local page = busy[ended.pid]
    busy[ended.pid], busy_count = nil, busy_count - 1
    if ended.error then
      failed[page] = ended.error:match("^[^\n]*")
    else
      found[#found + 1] = page
      for _, link in ipairs(ended.result) do
        if not seen[link] then seen[link], queue[#queue + 1] = true, link end
      end
    end
  end
  table.sort(found)
  return found, failed, peak
end

return crawler
