-- Holds the number: another change has it.
do $$ begin end $$;
