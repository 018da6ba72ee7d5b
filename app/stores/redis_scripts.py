"""The scripts that Redis runs for the calibration store, each of them alone and as one step."""

# A script has no rollback, so all that can fail must fail before the first write. A key of another
# type fails at the lengths; a full or read-only server refuses the first write that adds, which is
# therefore XADD and not DEL, and so does a stream whose newest entry somebody has taken out.
# `unpack` takes at most 8,000 values, hence 4,000 a time. Of what is published nothing depends: a
# user who may not publish writes all the same.
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

# Scripts, and not MULTI: a server that is full refuses MULTI, even around reads and deletions.
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

# HDEL first, of a field that never is: a server that is full lets a script go on once it has
# written, and a deletion must get through there. Then XADD, as it alone can still fail. UNLINK
# frees a large hash in the background. A version above `ports.LARGEST_NUMBER` was not counted up to
# and takes no number, so that its set can be deleted.
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
