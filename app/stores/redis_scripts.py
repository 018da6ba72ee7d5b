"""Lua scripts of the store; Redis runs each of them as one atomic step."""

# A script has no rollback, so every possible failure must happen before the first write.
# - The length commands fail for a key of another type.
# - The first write is XADD and not DEL, because a full or read-only server refuses only writes that
#   add data. XADD also fails if another program deleted the newest entry of the stream.
# `unpack` accepts at most 8,000 values, so the script passes 4,000 at a time. PUBLISH may fail: a
# user without the right to publish can still write, because readers also poll the version.
WRITE_SCRIPT = """
local meta, examples, thresholds, trail, undo, names = unpack(KEYS)
local name, write_id, version = ARGV[1], ARGV[2], ARGV[3]
local number, record, undoing = ARGV[4], ARGV[5], ARGV[6]
local meta_size, thresholds_size = tonumber(ARGV[7]), tonumber(ARGV[8])
local removed_size = tonumber(ARGV[9])
redis.call('HLEN', examples)
redis.call('HLEN', thresholds)
redis.call('HLEN', undo)
redis.call('SCARD', names)
local current = redis.call('HMGET', meta, 'write_id', 'version')
if (current[1] or '') ~= write_id or (current[2] or '') ~= version then
  return 0
end
local last = redis.call('XREVRANGE', trail, '+', '-', 'COUNT', 1)[1]
if last and tonumber(string.match(last[1], '^%d+')) >= tonumber(number) then
  return 0
end
local first = 10
local function each(command, key, size)
  local last = first + size - 1
  for i = first, last, 4000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 3999, last)))
  end
  first = last + 1
end
redis.call('XADD', trail, number .. '-0', 'record', record)
redis.call('HSET', undo, number, undoing)
redis.call('SADD', names, name)
if not current[1] then
  redis.call('DEL', examples)
end
redis.call('DEL', meta, thresholds)
each('HSET', meta, meta_size)
each('HSET', thresholds, thresholds_size)
each('HDEL', examples, removed_size)
each('HSET', examples, #ARGV - first + 1)
redis.pcall('PUBLISH', 'scope:calibration:changed', name)
return 1
"""

# Scripts instead of MULTI, because a full server refuses MULTI even for reads and deletions.
READ_SCRIPT = """
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]),
        redis.call('HGETALL', KEYS[3])}
"""

LAST_NUMBER_SCRIPT = """
local version = redis.pcall('HGET', KEYS[1], 'version')
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
return {type(version) == 'string' and version or '',
        last and string.match(last[1], '^%d+') or ''}
"""

# A deletion must succeed on a full server. Such a server lets a script continue after its first
# write, so the script first deletes a field that does not exist. XADD comes next, because it is the
# only write that can still fail. UNLINK frees a large hash in the background. No store reaches a
# version above `ports.LARGEST_NUMBER`, so the script ignores such a version, and its set can be
# deleted.
DELETE_SCRIPT = """
local meta, examples, thresholds, trail, undo, names = unpack(KEYS)
local name, number, record, undoing = unpack(ARGV)
redis.call('SCARD', names)
if redis.call('EXISTS', meta) == 0 then
  return 0
end
local last = redis.call('XREVRANGE', trail, '+', '-', 'COUNT', 1)[1]
local version = redis.pcall('HGET', meta, 'version')
local taken = last and tonumber(string.match(last[1], '^%d+')) or 0
local digits = type(version) == 'string' and string.match(version, '^[1-9]%d*$')
local counted = digits and tonumber(digits)
if counted and counted <= 9007199254740991 then
  taken = math.max(taken, counted)
end
if taken >= tonumber(number) then
  return 0
end
redis.call('HDEL', undo, '')
redis.call('XADD', trail, number .. '-0', 'record', record)
redis.call('HSET', undo, number, undoing)
redis.call('SREM', names, name)
redis.call('UNLINK', meta, examples, thresholds)
redis.pcall('PUBLISH', 'scope:calibration:changed', name)
return 1
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
