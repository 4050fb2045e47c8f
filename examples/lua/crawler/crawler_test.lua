-- crawler_test.lua - filch test examples/lua/crawler
local crawler = require "crawler"
local tests = {}

function tests.every_page_is_found_once_in_any_order()
  local found, failed = crawler.crawl("home", 3)
  assert(#found == 9, table.concat(found, " "))
  for i = 2, #found do assert(found[i] ~= found[i - 1]) end
  assert(failed.broken and failed.missing)
end

function tests.never_more_than_the_limit_at_once()
  for limit = 1, 4 do
    local _, _, peak = crawler.crawl("home", limit)
    assert(peak <= limit)
  end
end

function tests.a_failed_page_is_reported_as_a_result()
  local found, failed = crawler.crawl("broken", 1)
  assert(#found == 0 and failed.broken:find("hung up", 1, true))
end

return tests
