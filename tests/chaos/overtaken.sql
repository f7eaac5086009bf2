-- Claims that should not have been: while the statement could see a lower job of the lane that was inserted and not
-- finished. A chained start sees its own transaction's settle, so what ended in the same transaction is finished.
-- A job let go by a dead head's destination (skip), or redriven out of order, is finished too.
WITH begun AS (
    SELECT h.job_id, h.destination, h.entity_key, h.xid, h.seen, h.at
      FROM chaos.history h
     WHERE h.status = 'running' AND h.entity_key IS NOT NULL AND NOT h.redrive
),
inserted AS (
    SELECT h.job_id, h.destination, h.entity_key, h.xid FROM chaos.history h WHERE h.was IS NULL AND h.entity_key IS NOT NULL
)
SELECT b.job_id, b.destination, b.entity_key, l.job_id AS lower_id, b.at
  FROM begun b
  JOIN inserted l ON l.destination = b.destination AND l.entity_key = b.entity_key AND l.job_id < b.job_id
 WHERE pg_visible_in_snapshot(l.xid, b.seen)
   AND NOT EXISTS (SELECT
                     FROM chaos.history f
                    WHERE f.job_id = l.job_id AND NOT f.holds_lane
                      AND (f.xid = b.xid OR pg_visible_in_snapshot(f.xid, b.seen)))
