-- What the scripts of claims that share keys have in common, after holds.lua. It answers nothing.
--
-- The holders of a key are owners: the holds of one owner count as one holder. Nothing is counted
-- but the holds, and each states its MaxHolders: 1 if it is H or K.

local function max_holders_of(hold)
  local shares = hold.letter == 'S' or hold.letter == 'M'
  return hold.max_holders or shares and ANY or 1
end

-- held_by returns the H and the S of an owner.
local function held_by(all, owner)
  local holds = {}
  for _, list in ipairs({all.held, all.shared}) do
    for _, hold in ipairs(list) do
      if hold.owner == owner then
        holds[#holds + 1] = hold
      end
    end
  end
  return holds
end

-- count_holders returns how many owners hold the key, the smallest MaxHolders of all holds, and by
-- owner the hold that ends last. It leaves out the owner that is given, if any, but not the
-- MaxHolders of its holds.
local function count_holders(all, except)
  local count, smallest, last = 0, ANY, {}
  for _, list in ipairs({all.held, all.shared, all.kept}) do
    for _, hold in ipairs(list) do
      smallest = math.min(smallest, max_holders_of(hold))
      local owner = hold.owner
      if owner ~= except then
        if not last[owner] then
          count = count + 1
        end
        if not last[owner] or last[owner].ends < hold.ends then
          last[owner] = hold
        end
      end
    end
  end
  return count, smallest, last
end
