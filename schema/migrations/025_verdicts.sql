-- list_stuck_jobs names the tag of a row, and job_tags_now has a verdict. Postgres cannot change the columns of a function.

drop function if exists posthorn.list_stuck_jobs(text, text, int);
drop function if exists posthorn.stuck_reasons(text, int, text, int);
drop function if exists posthorn.count_behind(bigint, int);
drop function if exists posthorn.job_tags_now(text, text[], int);
