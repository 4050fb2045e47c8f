-- site.lua - a small web to crawl: pages and their links. Fetching takes a while, and one page is broken.
local links = {
  home = { "news", "shop", "about" },
  news = { "home", "news/1", "news/2", "news/3" },
  ["news/1"] = { "news" },
  ["news/2"] = { "news", "shop" },
  ["news/3"] = { "missing" },
  shop = { "shop/cart", "shop/books", "home" },
  ["shop/books"] = { "shop", "shop/cart" },
  ["shop/cart"] = { "shop", "broken" },
  about = {},
}

-- Returns the links of a page, after some time. Raises an error if the page is broken or does not exist.
local function fetch(page)
  time.sleep(0.002 * #page)
  if page == "broken" then error("the server has hung up") end
  return links[page] or error("no such page: " .. page)
end

return { fetch = fetch }
