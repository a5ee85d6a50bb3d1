-- list_stuck_jobs has one row for each reason, and says what helps. Postgres cannot change the columns of a function.

drop function if exists posthorn.list_stuck_jobs(text, text, int);
drop function if exists posthorn.stuck_reasons(text, int, text, int);
drop function if exists posthorn.held_back_tags(int, int);
