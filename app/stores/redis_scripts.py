"""Lua scripts of the store; Redis runs each of them as one atomic step."""

# A script has no rollback, so every possible failure must happen before the first write.
# - The length commands fail for a key of another type.
# - The first write is XADD, because a full or read-only server refuses only writes that add data.
#   A deletion must succeed on a full server, too, which lets a script continue after its first
#   write: so it first deletes a field that does not exist.
WRITE_SCRIPT = """
local trail, versions, thresholds = unpack(KEYS)
local was_id, was_number, write_id, number, record, blob, kept = unpack(ARGV, 1, 7)
redis.call('HLEN', versions)
redis.call('HLEN', thresholds)
local newest = redis.call('XREVRANGE', trail, '+', '-', 'COUNT', 1)[1]
local last = newest and string.match(newest[1], '^%d+') or ''
if last ~= was_number or (newest and newest[2][2] or '') ~= was_id then
  return 0
end
if newest and tonumber(last) >= tonumber(number) then
  return 0
end
if blob == '' then
  redis.call('HDEL', versions, '')
end
redis.call('XADD', trail, number .. '-0', 'write_id', write_id, 'record', record)
if blob ~= '' then
  redis.call('HSET', versions, number, blob)
end
for _, old in ipairs(redis.call('HKEYS', versions)) do
  if tonumber(old) <= tonumber(number) - tonumber(kept) then
    redis.call('HDEL', versions, old)
  end
end
redis.call('DEL', thresholds)
for i = 8, #ARGV, 2 do
  redis.call('HSET', thresholds, ARGV[i], ARGV[i + 1])
end
return 1
"""

# A script instead of MULTI, because a full server refuses MULTI even for reads.
READ_SCRIPT = """
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest or newest[2][2] == '' then
  return {'', ''}
end
return {newest[2][2], redis.call('HGET', KEYS[2], string.match(newest[1], '^%d+'))}
"""

# The first write is XADD, which a full server refuses.
APPEND_SCRIPT = """
local audits, texts = unpack(KEYS)
local most, entries, kept = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local newest = redis.call('XREVRANGE', audits, '+', '-', 'COUNT', 1)[1]
local last = newest and tonumber(string.match(newest[1], '^%d+')) or 0
local room = most - redis.call('HLEN', texts)
for i = 1, entries do
  redis.call('XADD', audits, string.format('%d-0', last + i), 'entry', ARGV[3 + i])
end
local first = 4 + entries
for i = first, first + 2 * kept - 2, 2 do
  if room > 0 then
    room = room - redis.call('HSETNX', texts, ARGV[i], ARGV[i + 1])
  end
end
for i = first + 2 * kept, #ARGV do
  redis.call('HDEL', texts, ARGV[i])
end
return last + entries
"""

# XADD comes first, because a full server refuses only writes that add data.
