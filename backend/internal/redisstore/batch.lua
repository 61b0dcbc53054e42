-- serve(i), above, answers the i-th of n calls, unless the quick way of the operation has answered
-- it. A script with one call answers what serve does. Otherwise it answers a list. A call that
-- fails fails alone, and its answer is the error's text: go-redis stops reading at an error in a
-- list, and takes the rest for the next command's answer. Only READONLY is the answer to all calls:
-- go-redis closes a connection on which it comes.
if n == 1 then
  return serve(1)
end
for i = 1, n do
  if not answers[i] then
    local ok, answer = pcall(serve, i)
    if type(answer) == 'table' and answer.err then
      answer = answer.err
    elseif not ok then
      answer = tostring(answer) -- a text before Redis 7
    end
    local readonly = type(answer) == 'string' and string.match(answer, 'READONLY .*')
    if readonly then
      return redis.error_reply(readonly)
    end
    answers[i] = answer
  end
end
return answers
