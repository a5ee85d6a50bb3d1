-- By the rules of this version.
select posthorn.recompile_conditions();
-- Last: partitions, which a fresh installation needs before its first event.
select count(*) from posthorn.maintain_events_table();
select count(*) from posthorn.maintain_job_tables();
