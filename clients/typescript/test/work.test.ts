import assert from 'node:assert/strict'
import test from 'node:test'
import pg from 'pg'
import { Moved, Permanent, PosthornError, RetryAfter, Snooze } from '../src/index.js'
import { child, databaseUrl, effects, fresh, gate, kill, namespace, open, run, sql, until } from './world.js'

test('jobs complete, with and without results', async (t) => {
  const ph = await open(t)
  ph.work(['a', 'b'], (job) => {
    if (job.payload.n % 2 === 0) job.setResult({ n: job.payload.n })
  })
  const ids = await ph.enqueue(ph.pool, Array.from({ length: 50 }, (_, n) => ({ title: `job ${n}`, tags: [n % 3 === 0 ? 'a' : 'b'], payload: { n } })))
  const untagged = await ph.enqueue(ph.pool, { title: 'untagged' })
  run(ph)
  await until('all are completed', async () => (await Promise.all(ids.map((id) => ph.admin.job(id)))).every((job) => job.status === 'COMPLETED'))
  const { why, ...job } = await ph.admin.job(ids[4]!)
  assert.match(why, / ago$/)
  assert.deepEqual(job, {
    id: ids[4], title: 'job 4', status: 'COMPLETED', state: 'completed', attempt: 1, progressText: undefined, resultText: '{"n":4}', errorMessage: undefined,
  })
  assert.equal((await ph.admin.job(ids[5]!)).resultText, undefined)
  assert.equal((await ph.admin.job(untagged)).status, 'PENDING')
})

test('a closed namespace refuses, and its workers and groups wait until it is opened', async (t) => {
  const name = await namespace()
  const said: string[] = []
  const log = (message: string) => void said.push(message)
  const ph = await open(t, { namespace: name, logger: { info: log, warn: log, error: log } })
  const done: string[] = []
  ph.work(['t'], (job) => void done.push(job.title))
  ph.group('g', { start: 'beginning' }).handle('h', 'e', () => void done.push('event'))
  run(ph)
  await ph.publish(ph.pool, { type: 'e' })
  await ph.enqueue(ph.pool, { title: 'first', tags: ['t'] })
  await until('both are handled', () => done.length === 2)
  await sql('select posthorn.close_namespace($1, $2)', [name, 'db2'])
  await assert.rejects(ph.enqueue(ph.pool, { title: 'refused', tags: ['t'] }), (error) => error instanceof Moved && error.code === 'moved' && error.movedTo === 'db2')
  await assert.rejects(ph.publish(ph.pool, { type: 'e' }), { code: 'moved', movedTo: 'db2' })
  const told = () => said.filter((message) => message === 'cannot take work yet, trying again').length
  await until('both tell it', () => told() === 2)
  await sql('select posthorn.open_namespace($1)', [name])
  await ph.publish(ph.pool, { type: 'e' })
  await ph.enqueue(ph.pool, { title: 'second', tags: ['t'] })
  await until('both go on', () => done.length === 4)
  assert.equal(told(), 2)
})

test('a process of a namespace that is being deleted waits, and does upkeep', async (t) => {
  const [name, applicationName] = [await namespace(), fresh('waits')]
  const ph = await open(t, { namespace: name, applicationName })
  await sql('select posthorn.close_namespace($1)', [name])
  for (const step of ['await_closed', 'delete_namespace']) { // beside transactions of other tests, which may make it fail
    await until(step, () => sql(`select posthorn.${step}($1)`, [name]).then(() => true, () => false))
  }
  run(ph)
  const calls = "select from pg_stat_activity where application_name = $1 and query like '%posthorn.tend(%'"
  await until('it calls for upkeep', async () => (await sql(calls, [applicationName])).length > 0)
  assert.deepEqual(await sql('select from posthorn.nodes where namespace = $1', [name]), [])
})

test('errors say what becomes of a job', async (t) => {
  const ph = await open(t)
  const attempts = new Map<string, string[]>()
  ph.work([], (job) => {
    const seen = attempts.get(job.title) ?? []
    attempts.set(job.title, [...seen, `${job.attempt}/${job.retryCount}`])
    if (job.title === 'permanent') throw new Permanent('never')
    if (job.title === 'failing') throw new Error('again')
    if (seen.length > 0) return
    if (job.title === 'later') throw new RetryAfter(1, 'busy')
    throw new Snooze(1)
  })
  const ids = await ph.enqueue(ph.pool, ['permanent', 'failing', 'later', 'snoozed'].map((title) => ({ title, maxRetries: 2, retryDelays: [1] })))
  run(ph)
  await until('all have an end', async () => (await Promise.all(ids.map((id) => ph.admin.job(id)))).every((job) => ['COMPLETED', 'FAILED'].includes(job.status)))
  assert.deepEqual(Object.fromEntries(attempts), { permanent: ['1/0'], failing: ['1/0', '2/1'], later: ['1/0', '2/1'], snoozed: ['1/0', '2/0'] })
  const failed = await ph.admin.job(ids[1]!)
  assert.equal(failed.status, 'FAILED')
  assert.match(failed.errorMessage!, /^again\n\n +at /)
  const withoutAge = (jobs: Awaited<ReturnType<typeof ph.admin.jobs>>) => jobs.map((job) => ({ ...job, why: job.why.replace(/\d+s ago/, 'ago') }))
  const listed = await ph.admin.jobs({ status: 'FAILED', newestFirst: true })
  assert.deepEqual(withoutAge(listed), withoutAge([failed, await ph.admin.job(ids[0]!)]))
  assert.deepEqual((await ph.admin.jobs({ limit: 2, offset: 1 })).map((job) => job.id), ids.slice(1, 3))
  assert.deepEqual(await ph.admin.jobs({ tags: ['mail'] }), [])
})

test('progress is kept for later attempts', async (t) => {
  const ph = await open(t)
  const seen: unknown[] = []
  ph.work([], async (job) => {
    seen.push(job.lastProgress)
    await job.progress({ page: 7 })
    if (job.attempt === 1) throw new RetryAfter(1)
  })
  await ph.enqueue(ph.pool, { title: 'x' })
  run(ph)
  await until('it comes again', () => seen.length === 2)
  assert.deepEqual(seen, [undefined, { page: 7 }])
})

test('steps are made once, and a sleep ends the attempt', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  const calls: string[] = []
  ph.work([], async (job) => {
    calls.push(`attempt ${job.attempt}`)
    const charge = await job.step('charge', () => {
      calls.push('charge')
      return { id: 'ch_1' }
    })
    await job.stepTx('book', (tx) => tx.query(`insert into ${table} (note) values ('booked')`).then(() => undefined))
    await job.sleep('withdraw', 1)
    if (calls.filter((c) => c.startsWith('attempt')).length === 2) throw new RetryAfter(1)
    await assert.rejects(job.step('charge', () => 1), { code: 'invalid' })
    job.setResult(charge)
  })
  const id = await ph.enqueue(ph.pool, { title: 'x' })
  run(ph)
  await until('it is completed', async () => (await ph.admin.job(id)).status === 'COMPLETED')
  assert.deepEqual(calls, ['attempt 1', 'charge', 'attempt 2', 'attempt 3'])
  assert.equal((await ph.admin.job(id)).resultText, '{"id":"ch_1"}')
  assert.equal((await sql(`select from ${table}`)).length, 1)
})

test('a pool of one connection is refused, and steps leave one of two to their functions', async (t) => {
  await assert.rejects(open(t, { maxConnections: 1 }), (error: PosthornError) =>
    error.code === 'invalid' && error.message === 'the pool has 1 connection, and 2 are needed' && /Set maxConnections to 2/.test(error.hint ?? ''))
  const small = new pg.Pool({ connectionString: databaseUrl, max: 1 })
  t.after(() => small.end())
  await assert.rejects(open(t, { pool: small }), { code: 'invalid', message: 'the pool has 1 connection, and 2 are needed' })

  const ph = await open(t, { maxConnections: 2 })
  const table = await effects(t)
  ph.work([], async (job) => {
    await job.stepTx('book', async (tx) => {
      await tx.query(`insert into ${table} (note) values ($1)`, [String(job.id)])
      await ph.pool.query('select 1')
    })
  })
  await ph.enqueue(ph.pool, Array.from({ length: 40 }, () => ({ title: 'x', maxRetries: 0 })))
  run(ph)
  await until('all are completed', async () => (await sql(`select from ${table}`)).length === 40)
})

test('a step in the transaction of another is refused', async (t) => {
  const ph = await open(t)
  ph.work([], async (job) => {
    await job.stepTx('outer', () => job.stepTx('inner', () => undefined))
  })
  const id = await ph.enqueue(ph.pool, { title: 'x', maxRetries: 0 })
  run(ph)
  await until('it has failed', async () => (await ph.admin.job(id)).status === 'FAILED')
  assert.match((await ph.admin.job(id)).errorMessage ?? '', /step "inner" of job \d+ begins within the transaction of another step/)
})

test('a step that fails is not saved, nor is the effect of its transaction', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  ph.work([], async (job) => {
    await job.stepTx('book', async (tx) => {
      await tx.query(`insert into ${table} (note) values ($1)`, [String(job.attempt)])
      if (job.attempt === 1) throw new RetryAfter(1)
    })
  })
  const id = await ph.enqueue(ph.pool, { title: 'x' })
  run(ph)
  await until('it is completed', async () => (await ph.admin.job(id)).status === 'COMPLETED')
  assert.deepEqual((await sql(`select note from ${table}`)).map((row) => row.note), ['2'])
})

test('a job waits for an event', async (t) => {
  const ph = await open(t)
  const results: unknown[] = []
  ph.work([], async (job) => {
    try {
      const paid = await job.await('paid', 'payment.settled', job.payload.order, job.payload.within)
      results.push([paid.type, paid.key, paid.payload.cents])
    } catch (error) {
      if (!(error instanceof PosthornError)) throw error
      results.push(error.code)
    }
  })
  const id = await ph.enqueue(ph.pool, { title: 'x', payload: { order: '7', within: 3600_000 } })
  run(ph)
  await until('it waits', async () => (await ph.admin.job(id)).status === 'PENDING' && (await ph.admin.job(id)).attempt === 1)
  await ph.publish(ph.pool, { type: 'payment.settled', key: '7', payload: { cents: 5 } })
  await until('it goes on', () => results.length === 1)
  await ph.enqueue(ph.pool, { title: 'y', payload: { order: '8', within: 1 } })
  await until('the other gives up', () => results.length === 2)
  assert.deepEqual(results, [['payment.settled', '7', 5], 'timed_out'])
})

test('a job is completed in the transaction of its handler', async (t) => {
  const ph = await open(t)
  const table = await effects(t)
  const committed = gate()
  let status: string | undefined
  ph.work([], async (job) => {
    const tx = await ph.pool.connect()
    try {
      await tx.query('begin')
      await tx.query(`insert into ${table} (event) values ($1)`, [job.id])
      job.setResult(1)
      await job.complete(tx)
      status = (await ph.admin.job(job.id)).status
      await committed.promise
      await tx.query('commit')
    } finally {
      tx.release()
    }
  })
  const id = await ph.enqueue(ph.pool, { title: 'x' })
  run(ph)
  await until('it is done', () => status !== undefined)
  assert.equal(status, 'PROCESSING')
  committed.open()
  await until('it is completed', async () => (await ph.admin.job(id)).status === 'COMPLETED')
  assert.equal((await ph.admin.job(id)).resultText, '1')
})

test('a job that is cancelled ends its handler, whose late reports are refused', async (t) => {
  const ph = await open(t)
  const started = gate()
  const ended = gate<unknown[]>()
  ph.work([], async (job, { signal }) => {
    started.open()
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    ended.open([signal.reason, await job.progress(1).catch((error: unknown) => error)])
  })
  const id = await ph.enqueue(ph.pool, { title: 'x' })
  run(ph)
  await started.promise
  await ph.admin.cancelJob(id, 'user is gone')
  for (const error of await ended.promise) assert.equal((error as PosthornError).code, 'lease_lost')
  assert.equal((await ph.admin.job(id)).status, 'CANCELLED')
})

test('leases of jobs are extended while handlers run', async (t) => {
  const space = await namespace()
  const [a, b] = [await open(t, { namespace: space }), await open(t, { namespace: space })]
  const finish = gate()
  let attempts = 0
  for (const ph of [a, b]) {
    ph.work([], { leaseFor: 6000 }, async () => {
      attempts++
      await finish.promise
    })
  }
  const id = await a.enqueue(a.pool, { title: 'x' })
  const lease = async () => (await sql('select lease_until from posthorn.running_jobs where job = $1', [id]))[0]?.lease_until as Date
  run(a)
  run(b)
  await until('it begins', async () => attempts === 1 && (await lease()) !== undefined)
  const first = await lease()
  await until('others would have seen the first deadline', async () => (await sql("select posthorn.now() > $1::timestamptz + interval '3 seconds' as passed", [first]))[0].passed)
  finish.open()
  await until('it is completed', async () => (await a.admin.job(id)).status === 'COMPLETED')
  assert.equal(attempts, 1)
})

test('a client that stops gives back the jobs that it has not finished', async (t) => {
  const space = await namespace()
  const a = await open(t, { namespace: space, drainFor: 50 })
  let begun = 0
  a.work([], { concurrency: 1 }, (_, { signal }) => {
    begun++
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  })
  const ids = await a.enqueue(a.pool, [{ title: 'x' }, { title: 'y' }])
  const { stop } = run(a)
  await until('one begins', () => begun === 1)
  await stop()
  for (const id of ids) assert.equal((await a.admin.job(id)).status, 'PENDING')
  const b = await open(t, { namespace: space })
  const seen: number[] = []
  b.work([], (job) => seen.push(job.retryCount))
  run(b)
  await until('another works on both', () => seen.length === 2)
  assert.deepEqual(seen, [0, 0])
})

for (const point of ['begin', 'charged', 'booked']) {
  test(`a flow is killed: ${point}`, async (t) => {
    const space = await namespace()
    const table = await effects(t)
    const ph = await open(t, { namespace: space })
    const id = await ph.enqueue(ph.pool, { title: 'x', tags: ['steps'], payload: { hang: point } })
    const first = child(t, 'steps', space, table)
    await new Promise<void>((resolve) => first.on('message', (said) => said === point && resolve()))
    await kill(first)
    child(t, 'steps', space, table)
    await until('it is completed', async () => (await ph.admin.job(id)).status === 'COMPLETED')
    assert.deepEqual((await sql(`select note from ${table} order by id`)).map((row) => row.note), ['charge', 'book 7'])
  })
}

test('a job that is completed in a transaction has its effect once, though its process is killed', async (t) => {
  const space = await namespace()
  const table = await effects(t)
  const ph = await open(t, { namespace: space })
  const id = await ph.enqueue(ph.pool, { title: 'x', tags: ['complete'] })
  const first = child(t, 'complete', space, table)
  await new Promise<void>((resolve) => first.once('message', () => resolve()))
  await kill(first)
  child(t, 'complete', space, table)
  await until('it is completed', async () => (await ph.admin.job(id)).status === 'COMPLETED')
  assert.equal((await sql(`select from ${table}`)).length, 1)
})
