-- Raises the error in the arguments of a claim, if there is one.
create or replace function posthorn.check_claim(max_events int, lease_for interval, token uuid)
returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Posthorn cannot claim at isolation level %', current_setting('transaction_isolation')
      using errcode = 'PH005', hint = 'Claim in a read committed transaction; publishing works at any level.';
  elsif max_events is null or max_events not between 1 and 10000 then
    raise exception 'max_events must be from 1 to 10000' using errcode = 'PH004';
  elsif lease_for is null or lease_for not between '1 millisecond' and '1 day' then
    raise exception 'lease_for must be from a millisecond to a day'
      using errcode = 'PH004', hint = 'Take a short lease and extend it while you work.';
  elsif token is null then
    raise exception 'token is missing' using errcode = 'PH004', hint = 'Give a fresh uuid for each call.';
  end if;
end $$;
