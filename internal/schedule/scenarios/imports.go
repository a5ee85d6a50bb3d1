package scenarios

import (
	"fmt"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// load is the round of an importer: it leads, reads its position, and imports the next event of the broker.
func load(n int) []step {
	owner := fmt.Sprintf("importer-h-%d-0123abc%d", n, n)
	return []step{
		{Op: promise.Lead{Owner: owner}, Gset: true, SQL: fmt.Sprintf("select term from posthorn.lead_import({i}, '%s', '30 seconds')", owner)},
		set("select coalesce(max(position), '') as place, coalesce(max(nullif(position, '')::int), 0) + 1 as next from posthorn.import_positions({i})"),
		{Op: promise.Led{}, SQL: fmt.Sprintf(`select posthorn.import_events({i}, '%s', {term}, array['orders'], array['{place}'], array['{next}'],
			array['01234567-89ab-cdef-0123-456789abcdef']::uuid[], array['shop'], array[false], array[1], array[{next}]::bigint[], array['e'], array['1'::json], array[posthorn.now()])`, owner)},
	}
}

// Imports of the events 1, 2, 3, … of a broker.
var imports = []*schedule.Scenario{
	{
		Name: "import", Promises: []int{10}, Model: promise.New(promise.Rules{}),
		Setup: []step{set("select posthorn.define_import('{ns}', 'in', 'redis://r', 'redis') as i")},
		Finally: `select 'promise 10: ' || count(*) || ' events were imported, with ' || count(distinct o.id) || ' ids up to ' || max(o.id)
			from posthorn.events e join posthorn.namespaces n on n.id = e.namespace_id and n.namespace = '{ns}'
			cross join lateral (select (e.metadata->'posthorn_origin'->>'id')::int as id) o having count(*) <> max(o.id) or count(distinct o.id) <> count(*)`,
		Sessions: []session{
			run("I1", append(load(1)[:2], begin, load(1)[2], commit)...),
			run("I2", append(load(2), load(2)[1:]...)...),
			run("I1again", load(1)...),
			run("T", wait(31*time.Second)),
		},
	},
}
