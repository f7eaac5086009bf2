-- One `relay sync` at a time; the routing trigger and pauses go on.
--
-- locks   SHARE UPDATE EXCLUSIVE on outbox.destination: refuses only its own kind.
LOCK TABLE outbox.destination IN SHARE UPDATE EXCLUSIVE MODE
