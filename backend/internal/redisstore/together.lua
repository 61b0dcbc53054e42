-- KEYS, ARGV: those of acquires, and then those of releases, one behind the other; in front of ARGV, how many acquires. Answers what each of them answers. One that fails answers its error, and fails alone.
-- Acquires come first: once a script has written something, Redis lets it go on writing when memory is full.
local known, counters, gone = {}, {}, {}
local values = redis.call('MGET', unpack(KEYS)) -- false where there is nothing, and where there is no string
for i, key in ipairs(KEYS) do
  known[key] = values[i]
end
get = function(key) return known[key] end
wrote = function(key, value) known[key] = value end
set_counter = function(counter, text) known[counter], counters[counter] = text, text end
delete = function(key) known[key], gone[#gone + 1] = false, key end

local answers, k, a = {}, 0, 1
local function run(n, call, keys, args)
  for _ = 1, n do
    local ok, answer = pcall(call, k, a)
    if not ok then
      answer = {err = type(answer) == 'table' and answer.err or tostring(answer)} -- a text before Redis 7
    end
    answers[#answers + 1] = answer
    k, a = k + keys, a + args
  end
end
before_all()
local acquires = tonumber(ARGV[1])
run(acquires, acquire, acquire_keys, acquire_args)
run((#KEYS - k) / release_keys, release, release_keys, release_args)

local pairs_of = {}
for counter, text in pairs(counters) do
  pairs_of[#pairs_of + 1] = counter
  pairs_of[#pairs_of + 1] = text
end
if #pairs_of > 0 then
  redis.call('MSET', unpack(pairs_of))
end
if #gone > 0 then
  redis.call('DEL', unpack(gone))
end
after_all()
return answers
