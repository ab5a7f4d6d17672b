#!lua
-- Give a lease back, or leave the queue; then serve those who wait. Repeating it is harmless.
--
-- KEYS  1 ends  2 held  3 nodes  4 granted  5 queue  6 seen  7 wants  8 token (see lib_leases)
-- ARGV  1 token, or "" for that of the waiter  2 waiter, or ""  3 what a waiter's name is added to for its list
-- REPLY 1 when a lease ended, 0 when none did
-- COST  O(nodes of the lease + leases that ended + nodes of the first 64 waiters)
-- include: lib_leases

local keys = lease_keys(0)
local token, waiter, grants = ARGV[1], ARGV[2], ARGV[3]
local now, micros = clock()
local ended = false
if waiter ~= '' then
  token = redis.call('HGET', keys.granted, waiter) or token
  leave_queue(keys, waiter)
  redis.call('DEL', grants .. waiter)
end
if token ~= '' then ended = end_lease(keys, token) end
purge_leases(keys, now)
purge_queue(keys, now)
serve(keys, now, micros, grants, '')
return ended and 1 or 0
