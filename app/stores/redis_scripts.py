"""Keys of the store in Redis, which `app.stores.redis` describes, and its Lua scripts.

Redis runs each script as one atomic step.
"""

from typing import NamedTuple

# The format of the store. A Redis with another number, or with sets and without one, is refused.
FORMAT = 1
FORMAT_KEY = "scope:format"
NAMES_KEY = "scope:sets"
AUDITED_KEY = "scope:audits:sets"
SECRET_KEY = "scope:audits:secret"
SCORE_PREFIX = "scope:score:"
DEBT_PREFIX = "scope:debt:"


class SetKeys(NamedTuple):
    """The keys of one set; in a cluster, the braces put them on one node."""

    trail: str
    versions: str
    thresholds: str

    @classmethod
    def of(cls, name: str) -> "SetKeys":
        """Returns the keys of the set with this name."""
        return cls(*(f"scope:{{{name}}}:{part}" for part in cls._fields))


class AuditKeys(NamedTuple):
    """The keys of the audits of one set."""

    rows: str
    order: str
    texts: str
    position: str

    @classmethod
    def of(cls, name: str) -> "AuditKeys":
        """Returns the keys of the set with this name."""
        parts = ("audits", "audit_order", "audit_texts", "audit_position")
        return cls(*(f"scope:{{{name}}}:{part}" for part in parts))


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

# The first write is HSET, which a full server refuses, or the removal of rows. The reads before it
# fail for a key of another type.
WRITE_AUDITS_SCRIPT = """
local rows, order, texts, position = unpack(KEYS)
local changed, removed, written = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local first_removed = 4 + 4 * changed
local first_text = first_removed + 2 * removed
local first_forgotten = first_text + 2 * written
redis.call('HLEN', rows)
redis.call('HLEN', texts)
redis.call('ZCARD', order)
local before = tonumber(redis.call('GET', position) or '0')
local function is_expected(key, place)
  return tonumber(redis.call('ZSCORE', order, key) or '0') == tonumber(place)
end
for i = 4, first_removed - 1, 4 do
  if not is_expected(ARGV[i], ARGV[i + 3]) then
    return -1
  end
end
for i = first_removed, first_text - 1, 2 do
  if not is_expected(ARGV[i], ARGV[i + 1]) then
    return -1
  end
end
local last = before
for i = 4, first_removed - 1, 4 do
  last = math.max(last + 1, tonumber(ARGV[i + 1]))
  redis.call('HSET', rows, ARGV[i], ARGV[i + 2])
  redis.call('ZADD', order, string.format('%.0f', last), ARGV[i])
end
for i = first_text, first_forgotten - 1, 2 do
  redis.call('HSET', texts, ARGV[i], ARGV[i + 1])
end
for i = first_forgotten, #ARGV do
  redis.call('HDEL', texts, ARGV[i])
end
for i = first_removed, first_text - 1, 2 do
  redis.call('HDEL', texts, ARGV[i])
  redis.call('HDEL', rows, ARGV[i])
  redis.call('ZREM', order, ARGV[i])
end
if removed > 0 then
  last = last + 1
end
redis.call('SET', position, string.format('%.0f', last))
return before
"""

# The key holds the time at which a caller has paid back its use, by the server's clock in seconds.
CHARGE_SCRIPT = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local paid_at = tonumber(redis.call('GET', KEYS[1]) or now)
local owed = math.max(0, paid_at - now)
if owed <= tonumber(ARGV[2]) then
  local new = owed + tonumber(ARGV[1])
  redis.call('SET', KEYS[1], string.format('%.6f', now + new), 'EX', math.ceil(new) + 1)
end
return string.format('%.6f', owed)
"""
