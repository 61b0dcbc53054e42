-- KEYS: the first ones of all acquires, those of all releases, the second ones of all acquires,
-- and those of all releases where they have some. ARGV: how many acquires, how many releases, and
-- then all first arguments of acquires, all second ones, and so on, and those of releases. In
-- front of each there is how many of them there are: none if they are empty, and one if they are
-- the same for all. Answers what each of them answers, acquires first. One that fails answers the
-- text of its error, and fails alone: go-redis stops to read where there is an error in a list,
-- and takes what is left for the next answer. What can be done quickly is done first, for many
-- keys at once; what it leaves is done one by one. Acquires come first: once a script has written
-- something, Redis lets it go on writing when memory is full.
local acquires, releases = tonumber(ARGV[1]), tonumber(ARGV[2])
local all = acquires + releases

-- column returns the next argument of all, or nil and a list of them.
local at = 3
local function column()
  local from, many = at + 1, tonumber(ARGV[at])
  at = at + 1 + many
  if many == 0 then
    return ''
  elseif many == 1 then
    return ARGV[from]
  end
  return nil, {unpack(ARGV, from, from + many - 1)}
end

local answers = {}

-- one_by_one answers those that have no answer yet. A backend says how: one(i) returns the answer
-- of the i-th of all.
local function one_by_one(from, to, one)
  for i = from, to do
    if not answers[i] then
      local ok, answer = pcall(one, i)
      if type(answer) == 'table' and answer.err then
        answer = answer.err
      elseif not ok then
        answer = tostring(answer) -- a text before Redis 7
      end
      answers[i] = answer
    end
  end
end

-- delete_all deletes the keys of those releases, each of which has found that it may. If several
-- ask for one key, the first one had it.
local function delete_all(keys, places)
  local deleted = #keys == 0 and 0 or redis.pcall('DEL', unpack(keys))
  if deleted == #keys then
    return
  end
  local seen = {}
  for n, key in ipairs(keys) do
    if type(deleted) == 'table' then
      answers[places[n]] = deleted.err
    elseif seen[key] then
      answers[places[n]] = 0
    end
    seen[key] = true
  end
end
