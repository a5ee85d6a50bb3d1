import assert from 'node:assert/strict'
import test from 'node:test'
import pg from 'pg'
import { type Event, Posthorn, PosthornError, raw } from '../src/index.js'
import { databaseUrl, open, sql } from './world.js'

async function all(client: Posthorn): Promise<Event[]> {
  const events: Event[] = []
  for await (const e of client.read()) events.push(e)
  return events
}

test('an event exists if and only if its transaction commits', async (t) => {
  const ph = await open(t)
  const tx = await ph.pool.connect()
  await tx.query('begin')
  await ph.publish(tx, { type: 'order.placed', payload: { order: 1 } })
  await tx.query('rollback')
  await tx.query('begin')
  const id = await ph.publish(tx, { type: 'order.placed', payload: { order: 2 } })
  assert.deepEqual(await all(ph), [])
  await tx.query('commit')
  tx.release()
  const events = await all(ph)
  assert.deepEqual(events.map((e) => [e.id, e.payload]), [[id, { order: 2 }]])
})

test('all fields of messages arrive', async (t) => {
  const ph = await open(t)
  const message = {
    type: 'order.placed', payload: { text: 'ä "quoted" \\ {,}' }, stream: 'orders', key: 'k', tags: ['a "b"', 'c\\d', 'e,f'], metadata: { by: 'me' },
  }
  const one = await ph.publish(ph.pool, message)
  const many = await ph.publish(ph.pool, [message, { type: 'plain' }])
  const dedup = await ph.publish(ph.pool, [{ ...message, dedupKey: 'x' }, { ...message, dedupKey: 'x' }, { type: 'later', deliverAt: new Date(Date.now() + 3600_000) }])
  assert.equal(dedup[0], dedup[1])
  const events = await all(ph)
  assert.deepEqual(events.map((e) => e.id), [one, ...many, dedup[0]])
  for (const e of [events[0]!, events[1]!, events[3]!]) {
    assert.deepEqual([e.type, e.payload, e.stream, e.key, e.tags, e.metadata],
      [message.type, message.payload, message.stream, message.key, message.tags, { producer: ph.nodeId, by: 'me' }])
    assert.ok(Math.abs(e.publishedAt.getTime() - Date.now()) < 600_000)
  }
  assert.deepEqual([events[2]!.stream, events[2]!.key, events[2]!.tags, events[2]!.payload], ['default', '', [], {}])
})

test('what types refuse is refused in JavaScript, too, with the name of the field', async (t) => {
  const ph = await open(t) as any
  const plain = { type: 'a' }
  const mistakes: [object, RegExp][] = [
    [{ tags: 'mail' }, /^(message|job) 0: tags must/], [{ tags: [7] }, /tags must/], [{ tag: 'mail' }, /0 has an unknown field "tag"/],
  ]
  for (const [wrong, field] of mistakes) {
    const refused = { code: 'invalid', message: field }
    await assert.rejects(ph.publish(ph.pool, { ...plain, ...wrong }), refused)
    await assert.rejects(ph.publish(ph.pool, [{ ...plain, ...wrong }, plain]), refused)
    await assert.rejects(ph.publishTo(ph.pool, 'g', 's', { ...plain, ...wrong }), refused)
    await assert.rejects(ph.enqueue(ph.pool, { title: 'a', ...wrong }), refused)
    await assert.rejects(ph.schedule(ph.pool, { name: 's', cron: '@daily', job: { title: 'a', ...wrong } }), refused)
  }
  await assert.rejects(ph.publish(ph.pool, [plain, { ...plain, tag: 'mail' }]), { message: 'message 1 has an unknown field "tag"', hint: /^Fields are type, .* and dedupKey\.$/ })
  assert.throws(() => ph.work('mail', () => undefined), { code: 'invalid', message: 'work: tags must be an array of texts' })
  assert.ok(await ph.publish(ph.pool, { ...plain, tags: undefined, tag: undefined }))
})

test('numbers beyond 2^53 keep their digits', async (t) => {
  const text = '{"n": 9007199254740993.000000000000000001}'
  const ph = await open(t, { parse: (json) => ({ json }) })
  await ph.publish(ph.pool, { type: 'big', payload: raw(text) })
  await ph.publish(ph.pool, [{ type: 'big', payload: raw(text) }, { type: 'big', payload: raw(text) }])
  for (const e of await all(ph)) {
    assert.equal(e.payloadText, text)
    assert.deepEqual(e.payload, { json: text })
    assert.equal(typeof e.id, 'bigint')
  }
})

test('jobs exist if and only if their transaction commits', async (t) => {
  const ph = await open(t)
  const tx = await ph.pool.connect()
  await tx.query('begin')
  const dropped = await ph.enqueue(tx, { title: 'dropped' })
  await tx.query('rollback')
  tx.release()
  await assert.rejects(ph.admin.job(dropped), { code: 'not_found' })
  const [first, second] = await ph.enqueue(ph.pool, [
    { title: 'one', tags: ['a', 'b'], payload: raw('12345678901234567890'), priority: 3, fairKey: 'k', weight: 2, metadata: { m: 1 } },
    { title: 'two', runAt: new Date('2030-01-01T00:00:00Z'), maxRetries: 0 },
  ])
  const [third, fourth] = await ph.enqueue(ph.pool, [
    { title: 'three', description: 'long', uniqueKey: 'u', uniqueFor: 60_000, retryDelays: [1000, 2500], after: [first!], payload: { x: 'ü' } },
    { title: 'again', uniqueKey: 'u', uniqueFor: 60_000 },
  ])
  assert.equal(third, fourth)
  const jobs = await sql('select title, tags, payload::text, priority, max_retries, run_at, description from posthorn.jobs where id = any ($1) order by id',
    [[first, second, third].map(String)])
  assert.deepEqual(jobs.map((j) => [j.title, j.tags, j.payload, j.priority, j.max_retries, j.description]), [
    ['one', ['a', 'b'], '12345678901234567890', 3, 3, null], ['two', [], '{}', 0, 0, null], ['three', [], '{"x": "ü"}', 0, 3, 'long'],
  ])
  assert.equal(jobs[1].run_at.toISOString(), '2030-01-01T00:00:00.000Z')
})

test('errors say what to do', async (t) => {
  const ph = await open(t)
  await assert.rejects(ph.publish(ph.pool, { type: '' }), (error: PosthornError) => {
    assert.equal(error.code, 'invalid')
    assert.match(error.hint!, /order\.placed/)
    return true
  })
  const circle: any = {}
  circle.self = circle
  await assert.rejects(ph.publish(ph.pool, { type: 'x', payload: circle }), { code: 'invalid' })
  await assert.rejects(Posthorn.open({ databaseUrl, namespace: 'is_none' }), { code: 'not_found' })
  await assert.rejects(Posthorn.open({}), { code: 'invalid' })
  await assert.rejects(Posthorn.open({ databaseUrl: 'nonsense' }), { code: 'invalid' })
  const empty = new pg.Pool({ connectionString: databaseUrl.replace(/\/[^/?]*(\?|$)/, '/template1$1') })
  await assert.rejects(Posthorn.open({ pool: empty }), { code: 'not_migrated' })
  await empty.end()
})

test('a client works in a pool of the program', async (t) => {
  const pool = new pg.Pool({ connectionString: databaseUrl })
  t.after(() => pool.end())
  const ph = await open(t, { pool })
  await ph.publish(pool, { type: 'order.placed' })
  assert.equal((await all(ph)).length, 1)
  await ph.close()
  await pool.query('select 1') // is still open
})
