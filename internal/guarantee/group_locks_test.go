package guarantee

import "testing"

// A transaction that changes a group takes the lock of the group before its row, and after the
// row of its reader, as its deletion does. Else the two could wait for each other.
func TestGroupIsLockedInOneOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		code   string // of the error that the deletion may cause
	}{
		"order":                {"select posthorn.define_group('default', $1, '{\"order\": \"key\"}')", ""},
		"new name":             {"select posthorn.subscribe('default', $1, 'new', '{}', '{old}')", "PH002"},
		"stopped subscription": {"select posthorn.subscribe('default', $1, 'old', '{}')", ""},
		"reader":               {"select posthorn.set_group_cursor($1, (select c from public.read_to))", "PH003"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.subscribe("old", "{}")
			s.exec("select posthorn.stop_subscriptions(group_no, array[(id, 'boom')::posthorn.trouble]) from posthorn.subscriptions")
			s.exec("select posthorn.subscribe('default', $1, 'other', '{}')", group)
			s.publish()
			s.exec("create table public.read_to as select next_cursor as c from posthorn.read_next_events($1) limit 1", group)
			// The deletion has the lock of the group, and waits for another table: it takes the row of the group last.
			keeper, deleter, changer := s.another(), s.another(), s.another()
			keeper.exec("begin; lock table posthorn.dead_letters in share mode")
			deleted := deleter.background("select posthorn.delete_group('default', $1)", group)
			s.awaitBlocked(deleter)
			changed := changer.background(c.change, group)
			s.awaitBlocked(changer)
			keeper.exec("commit")
			if err := deleted(); err != nil {
				t.Errorf("deletion: %v", err)
			}
			if err := changed(); err != nil && (c.code == "" || !hasCode(err, c.code)) {
				t.Errorf("change: %v", err)
			}
		})
	}
}

// Of two sessions that give a group different orders at the same time, the second waits for the
// first, and changes the order that this one has made.
func TestOrderChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key"}`)
	first, second := s.another(), s.another()
	first.exec("begin")
	first.exec("select posthorn.define_group('default', $1, '{\"order\": \"stream\"}')", group)
	outcome := second.background("select posthorn.define_group('default', $1, '{\"order\": \"key\"}')", group)
	s.awaitBlocked(second)
	first.exec("commit")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "order", value[string](s, "select ordering from posthorn.groups where name = $1", group), "key")
}
