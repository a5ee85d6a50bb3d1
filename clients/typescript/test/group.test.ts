import assert from 'node:assert/strict'
import test from 'node:test'
import { type Event, EventErrors, Permanent, PosthornError, RetryAfter, Snooze, subscribed } from '../src/index.js'
import { matches } from '../src/route.js'
import { deadLetters, fresh, gate, namespace, open, run, sql, until } from './world.js'

/** The deadlines of the leases of a namespace. */
async function deadlines(space: string): Promise<Date[]> {
  return (await sql(`select l.until from posthorn.leases l join posthorn.namespaces n on n.id = l.namespace_id
    where n.namespace = $1 and l.until is not null`, [space])).map((row) => row.until)
}

test('each handler gets each event that its patterns match', async (t) => {
  const ph = await open(t)
  const g = ph.group('mail', { start: 'beginning' })
  const seen: string[] = []
  g.handle('placed', 'order.placed', (e) => seen.push(`placed ${e.payload.n}`))
  g.handle('all', 'order.>, user.*', async (e) => seen.push(`all ${e.payload.n}`))
  await ph.publish(ph.pool, ['order.placed', 'order.paid.late', 'user.made', 'other'].map((type, n) => ({ type, payload: { n } })))
  const { stop } = run(ph)
  await until('all are handled', () => seen.length === 4)
  assert.deepEqual(seen.sort(), ['all 0', 'all 1', 'all 2', 'placed 0'])
  await stop()
  assert.deepEqual(await deadlines(ph.namespace), [])
})

test('patterns match as in SQL', async () => {
  const patterns = ['a', 'a.b', 'a.*', '*.b', 'a.>', '>', '*', '*.*', 'a.*.c', 'a.b.>', '*.>']
  const names = ['a', 'b', 'a.b', 'a.c', 'a.b.c', 'b.b', 'a.b.c.d', 'a.', '.b']
  const [row] = await sql('select array_agg(posthorn.matches(p, n) order by i, j) as m from unnest($1::text[]) with ordinality x (p, i), unnest($2::text[]) with ordinality y (n, j)',
    [patterns, names])
  assert.deepEqual(patterns.flatMap((p) => names.map((n) => matches(p, n))), row.m)
})

test('a failed event is retried for its handler alone, and becomes a dead letter', async (t) => {
  const ph = await open(t)
  const g = ph.group('billing', { start: 'beginning', delays: [1, 1] })
  const failing: Event[] = []
  let fine = 0
  g.handle('charge', 'order.*', (e) => {
    failing.push(e)
    throw new Error('card declined')
  })
  g.handle('mail', 'order.*', () => fine++)
  const id = await ph.publish(ph.pool, { type: 'order.placed', key: 'k' })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'billing')).length === 1)
  const [letter] = await deadLetters(ph, 'billing')
  assert.deepEqual([letter!.event, letter!.subscription, letter!.error, letter!.attempts, letter!.reason], [id, 'charge', 'card declined', 3, 'Handler error'])
  assert.deepEqual(failing.map((e) => e.delivery), [1, 2, 3])
  assert.deepEqual(failing[1]!.subscriptions, ['charge'])
  assert.equal(fine, 1)
  assert.equal(await ph.admin.redrive('billing'), 1)
  await until('it comes again', () => failing.length > 3)
})

for (const transactional of [false, true]) {
  test(`the log says what became of a failure, also by a policy that another process has set${transactional ? ', in a transaction' : ''}`, async (t) => {
    const logged: [string, any][] = []
    const note = (message: string, attributes: unknown) => void logged.push([message, attributes])
    const ph = await open(t, { logger: { info: () => undefined, warn: note, error: note } })
    const g = ph.group('g', { start: 'beginning' })
    g.handle('charge', '>', async (e) => {
      if (e.type === 'last') await sql(`select posthorn.define_group($1, 'g', '{"attempts": 1}')`, [ph.namespace])
      throw new Error('card declined')
    })
    if (transactional) g.handleTx('book', '>', () => undefined) // its transaction settles the failure of the other handler
    run(ph)
    const find = (text: string) => logged.find(([message]) => message.includes(text))?.[1]
    await ph.publish(ph.pool, { type: 'first' })
    await until('a retry is logged', () => find('is tried again'))
    const retry = find('is tried again')
    assert.deepEqual([retry.handler, retry.type, retry.attempt, retry.error], ['charge', 'first', 1, 'card declined'])
    assert.ok(Date.parse(retry.next_attempt) > 0)
    await ph.publish(ph.pool, { type: 'last' })
    await until('a dead letter is logged', () => find('is a dead letter now'))
  })
}

test('errors say what becomes of an event', async (t) => {
  const ph = await open(t)
  const g = ph.group('g', { start: 'beginning', delays: [3600_000] })
  const deliveries: Record<string, number[]> = { permanent: [], later: [], snoozed: [], unreadable: [] }
  g.handle('h', '>', (e) => {
    const seen = deliveries[e.type]!
    seen.push(e.delivery)
    if (e.type === 'permanent') throw new Permanent('never')
    if (e.type === 'unreadable') return JSON.parse('{') as never
    if (seen.length > 1) return undefined
    if (e.type === 'later') throw new RetryAfter(1, new Error('busy'))
    throw new Snooze(1)
  })
  await ph.publish(ph.pool, [{ type: 'permanent' }, { type: 'later' }, { type: 'snoozed' }])
  run(ph)
  await until('all have an end', () => deliveries['later']!.length === 2 && deliveries['snoozed']!.length === 2)
  assert.deepEqual(deliveries, { permanent: [1], later: [1, 2], snoozed: [1, 1], unreadable: [] })
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
})

test('a payload that cannot be read is a dead letter at once', async (t) => {
  const ph = await open(t, { parse: () => { throw new Error('no JSON of mine') } })
  ph.group('g', { start: 'beginning' }).handle('h', '>', (e) => e.payload)
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.match((await deadLetters(ph, 'g'))[0]!.error, /no JSON of mine/)
})

test('a sealed payload is not taken for a plain one', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning', attempts: 1 }).handle('h', '>', (e) => e.payload)
  await ph.publish(ph.pool, { type: 'x', payload: { posthorn_sealed: 'AAAA' } })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.match((await deadLetters(ph, 'g'))[0]!.error, /is sealed/)
})

test('events of a key keep their order over processes and failures', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const name = 'ordered'
  const seen = new Map<string, number[]>()
  let running = new Set<string>()
  const failed = new Set<string>()
  for (const ph of [a, b]) {
    ph.group(name, { order: 'key', start: 'beginning', delays: [5, 5, 5, 5], batchSize: 7 }).handle('h', '>', async (e) => {
      assert.ok(!running.has(e.key), 'two events of a key at once')
      running.add(e.key)
      await new Promise((resolve) => setImmediate(resolve))
      running.delete(e.key)
      if (e.payload.n % 10 === 3 && !failed.has(`${e.key} ${e.payload.n}`)) {
        failed.add(`${e.key} ${e.payload.n}`)
        throw new Error('once')
      }
      seen.set(e.key, [...(seen.get(e.key) ?? []), e.payload.n])
    })
  }
  for (let n = 0; n < 30; n++) {
    await a.publish(a.pool, Array.from({ length: 10 }, (_, key) => ({ type: 'x', key: `k${key}`, payload: { n } })))
  }
  run(a)
  run(b)
  await until('all are handled', () => [...seen.values()].reduce((sum, list) => sum + list.length, 0) === 300)
  for (const list of seen.values()) assert.deepEqual(list, Array.from({ length: 30 }, (_, n) => n))
  assert.equal(failed.size, 30)
})

test('the end of a lease lets the next one of its slot begin', async (t) => {
  const ph = await open(t)
  const { promise: mayEnd, open: end } = gate()
  const seen: bigint[] = []
  ph.group('ordered', { order: 'total', start: 'beginning', batchSize: 1, idlePoll: 3600_000 }).handle('h', '>', async (e) => {
    seen.push(e.id)
    await mayEnd
  })
  run(ph)
  const ids = [await ph.publish(ph.pool, { type: 'x' })]
  await until('the first one is handled', () => seen.length === 1)
  ids.push(...await ph.publish(ph.pool, Array.from({ length: 30 }, () => ({ type: 'x' }))))
  end()
  await until('all are handled', () => seen.length === ids.length)
  assert.deepEqual(seen, ids)
})

test('batches come in order, and fail as a whole or in part', async (t) => {
  const ph = await open(t)
  const calls: string[][] = []
  ph.group('g', { start: 'beginning', delays: [1] }).handleBatch('h', '>', (events) => {
    calls.push(events.map((e) => e.type))
    if (events.length > 1) throw new EventErrors(new Map(events.filter((e) => e.type === 'bad').map((e) => [e.id, new Error('bad')])))
  })
  await ph.publish(ph.pool, ['a', 'bad', 'c'].map((type) => ({ type })))
  run(ph)
  await until('the bad one is handled alone', () => calls.length === 2)
  assert.deepEqual(calls, [['a', 'bad', 'c'], ['bad']])
})

test('middleware wraps handlers, the first one outermost', async (t) => {
  const ph = await open(t)
  const steps: string[] = []
  const around = (name: string) => (next: (e: Event, c: any) => unknown) => async (e: Event, c: any) => {
    steps.push(`${name} in`)
    await next(e, c)
    steps.push(`${name} out`)
  }
  const g = ph.group('g', { start: 'beginning', middleware: [around('outer'), around('inner')] })
  g.handleTx('h', '>', async (tx) => {
    await tx.query('select 1')
    steps.push('handler')
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('it is handled', () => steps.length === 5)
  assert.deepEqual(steps, ['outer in', 'inner in', 'handler', 'inner out', 'outer out'])
})

test('subscriptions select events in the database', async (t) => {
  const ph = await open(t)
  const g = ph.group('g', { start: 'beginning' })
  const seen: string[] = []
  g.subscribe('large', { filter: { types: ['order.*'], payload: { large: true } } })
  g.subscribe('cheap', { condition: "(e.payload->>'cents')::int < (s.params->>'most')::int", params: { most: 5 } })
  g.handle('large', subscribed, (e) => seen.push(`large ${e.payload.n}`))
  g.handle('cheap', subscribed, (e) => seen.push(`cheap ${e.payload.n} ${e.subscriptions.sort()}`))
  run(ph)
  await until('the subscriptions exist', async () =>
    (await sql('select from posthorn.subscriptions s join posthorn.groups g on g.id = s.group_no join posthorn.namespaces n on n.id = g.namespace_id where n.namespace = $1',
      [ph.namespace])).length === 2)
  await ph.publish(ph.pool, [
    { type: 'order.placed', payload: { n: 1, large: true, cents: 10 } }, { type: 'order.placed', payload: { n: 2, large: false, cents: 10 } },
    { type: 'order.placed', payload: { n: 3, large: true, cents: 1 } },
  ])
  await until('both have theirs', () => seen.length === 3)
  assert.deepEqual(seen.sort(), ['cheap 3 cheap,large', 'large 1', 'large 3'])
  await ph.publishTo(ph.pool, 'g', 'cheap', { type: 'other', payload: { n: 4 } })
  await until('it comes', () => seen.includes('cheap 4 cheap'))
})

test('a condition that is too slow is stopped, and the others go on', async (t) => {
  const ph = await open(t)
  const endless = `public.${fresh('endless')}`
  await sql(`create function ${endless}(text) returns boolean language plpgsql stable strict as 'begin perform pg_sleep(3600); return true; end'`)
  t.after(() => sql(`select posthorn.disallow_condition_function('${endless}(text)')`).then(() => sql(`drop function ${endless}`)))
  await sql(`select posthorn.allow_condition_function('${endless}(text)')`)
  const g = ph.group('g', { start: 'beginning', leaseFor: 3000 })
  let seen = 0
  g.subscribe('endless', { condition: `${endless}(e.type)` })
  g.subscribe('quick', { condition: "e.type = 'a'" })
  g.handle('endless', subscribed, () => undefined)
  g.handle('quick', subscribed, () => seen++)
  await ph.publish(ph.pool, { type: 'a' })
  run(ph)
  await until('the quick one has the event', () => seen === 1)
  const [row] = await sql(`select s.error from posthorn.subscriptions s join posthorn.groups g on g.id = s.group_no join posthorn.namespaces n on n.id = g.namespace_id
    where n.namespace = $1 and s.stopped_at is not null`, [ph.namespace])
  assert.match(row.error, /took longer than/)
  assert.deepEqual(await sql("select from pg_stat_activity where state = 'active' and wait_event = 'PgSleep' and query like '%claim%'"), [])
})

test('a group has subscriptions or handlers with patterns', async (t) => {
  const ph = await open(t)
  const g = ph.group('g')
  g.subscribe('a')
  g.handle('b', '>', () => undefined)
  await assert.rejects(ph.run(), { code: 'invalid' })
  await assert.rejects(async () => ph.group('g'), { code: 'invalid' })
  assert.throws(() => g.handle('b', '>', () => undefined), { code: 'invalid' })
  assert.throws(() => g.handle('c', 'a..b', () => undefined), { code: 'invalid' })
})

test('handlers are added while the client runs, and events wait for the node that has their handler', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const seen: string[] = []
  const groups = [a, b].map((ph) => ph.group('g', { start: 'beginning' }))
  groups[0]!.handle('first', 'x', () => seen.push('first'))
  run(a)
  run(b)
  groups[1]!.handle('second', 'x', () => seen.push('second'))
  await until('both know the other handler', async () =>
    (await sql('select from posthorn.node_handlers where node_id = any ($1)', [[a.nodeId, b.nodeId]])).length === 2)
  await until('they have read each others handlers', () => groups.every((g) => (g as any).routes.others.length === 1))
  await a.publish(a.pool, { type: 'x' })
  await until('both have run', () => seen.length === 2)
  assert.deepEqual(seen.sort(), ['first', 'second'])
})

test('leases are extended while handlers run', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const seen: number[] = []
  const finish = gate()
  for (const ph of [a, b]) {
    ph.group('g', { start: 'beginning', leaseFor: 6000 }).handle('h', '>', async (e) => {
      seen.push(e.delivery)
      await finish.promise
    })
  }
  await a.publish(a.pool, { type: 'x' })
  run(a)
  run(b)
  await until('it begins', () => seen.length > 0)
  const [first] = await deadlines(space)
  await until('others would have seen the first deadline', async () => (await sql("select posthorn.now() > $1::timestamptz + interval '3 seconds' as passed", [first]))[0].passed)
  finish.open()
  await until('it is settled', async () => (await deadlines(space)).length === 0)
  assert.deepEqual(seen, [1])
})

test('a client that stops waits for its handlers, and gives back what has not begun', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const finish = gate()
  const seen: string[] = []
  a.group('g', { start: 'beginning', concurrency: 1 }).handle('h', '>', async (e) => {
    seen.push(`a ${e.type}`)
    await finish.promise
  })
  await a.publish(a.pool, [{ type: 'one' }, { type: 'two' }])
  const { stop } = run(a)
  await until('it begins', () => seen.length === 1)
  let stopped = false
  const stopping = stop().then(() => (stopped = true))
  assert.equal(stopped, false)
  finish.open()
  await stopping
  assert.deepEqual(seen, ['a one', 'a two']) // of one lease, in the time to drain
  await a.publish(a.pool, { type: 'three' })
  b.group('g').handle('h', '>', (e) => seen.push(`b ${e.type} ${e.delivery}`))
  run(b)
  await until('another takes over', () => seen.length === 3)
  assert.equal(seen[2], 'b three 1')
})

test('closing a client ends its run, which waits for handlers', async (t) => {
  const ph = await open(t)
  const begun = gate()
  const finish = gate()
  let done = false
  ph.group('g', { start: 'beginning' }).handle('h', '>', async () => {
    begun.open()
    await finish.promise
    done = true
  })
  await ph.publish(ph.pool, { type: 'x' })
  const running = ph.run()
  await begun.promise
  const closing = ph.close()
  finish.open()
  await closing
  assert.ok(done)
  await running
  assert.deepEqual(await deadlines(ph.namespace), [])
})

test('when the time to drain is over, the signal comes and the event goes back', async (t) => {
  const space = await namespace()
  const a = await open(t, { namespace: space, drainFor: 50 })
  const reasons: unknown[] = []
  a.group('g', { start: 'beginning', attempts: 1 }).handle('h', '>', (_, { signal }) => new Promise((_, reject) => {
    signal.addEventListener('abort', () => {
      reasons.push(signal.reason)
      reject(signal.reason)
    })
    reasons.push('begun')
  }))
  await a.publish(a.pool, { type: 'x' })
  const { stop } = run(a)
  await until('it begins', () => reasons.length === 1)
  await stop()
  assert.ok(reasons[1] instanceof PosthornError)
  const b = await open(t, { namespace: space })
  const seen: number[] = []
  b.group('g', { attempts: 1 }).handle('h', '>', (e) => seen.push(e.delivery))
  run(b)
  await until('another has it', () => seen.length === 1)
  assert.deepEqual(seen, [1]) // the attempt did not count
})

test('the signal comes when a handler has used up its time, and the event has failed', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning', timeout: 50, attempts: 1 }).handle('h', '>', (_, { signal }) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('I was told to stop')))))
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('a dead letter', async () => (await deadLetters(ph, 'g')).length === 1)
  assert.match((await deadLetters(ph, 'g'))[0]!.error, /used up its time of 50 ms: I was told to stop/)
})

test('the signal comes when a handler has lost its event', async (t) => {
  const ph = await open(t)
  const reason = gate<unknown>()
  ph.group('g', { start: 'beginning', leaseFor: 1000 }).handle('h', '>', async (e, { signal }) => {
    if (e.delivery > 1) return
    await sql('select posthorn.release(l.id, l.attempt) from posthorn.leases l where l.node = $1', [ph.nodeId])
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(reason.open(signal.reason))))
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  assert.equal((await reason.promise as PosthornError).code, 'lease_lost')
})

test('an order that cannot change yet is changed later', async (t) => {
  const space = await namespace()
  const name = fresh('g')
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  await sql("select posthorn.define_group($1, $2, '{\"start\": \"beginning\"}')", [space, name])
  const finish = gate()
  let seen = 0
  a.group(name).handle('h', '>', async () => {
    seen++
    await finish.promise
  })
  await a.publish(a.pool, { type: 'x' })
  const { stop } = run(a)
  await until('a lease is out', () => seen === 1)
  b.group(name, { order: 'key' }).handle('h', '>', () => undefined)
  run(b)
  const order = async () => (await sql('select g.ordering from posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id where n.namespace = $1', [space]))[0].ordering
  await until('the other one has asked', async () => (await sql('select from posthorn.node_handlers where node_id = $1', [b.nodeId])).length === 1)
  assert.equal(await order(), 'none')
  finish.open()
  await stop()
  await until('the order changes', async () => (await order()) === 'key')
})
