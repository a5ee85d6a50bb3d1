// A process of the tests that kill processes: node worker.js ROLE NAMESPACE TABLE.
import { Posthorn } from '../src/index.js'
import { databaseUrl } from './world.js'

const [role, namespace, table] = process.argv.slice(2) as [string, string, string]
const ph = await Posthorn.open({ databaseUrl, namespace })
const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())
process.on('disconnect', () => process.exit(1))

const note = (db: { query: any }, event: bigint, text: string) => db.query(`insert into ${table} (event, note) values ($1, $2)`, [event, text])

const roles: Record<string, () => void> = {
  // Notes each event in its transaction.
  effects: () => ph.group('effects', { start: 'beginning', leaseFor: 1000, delays: [1] }).handleTx('h', '>', async (tx, e) => {
    await note(tx, e.id, 'done')
    process.send!(String(e.id))
  }),
  // Takes an event, and never returns.
  hang: () => ph.group('hang', { start: 'beginning', leaseFor: 1000 }).handle('h', '>', (e) => new Promise(() => process.send!(String(e.id)))),
  // A job of steps. It hangs where its payload says, in its first attempt.
  steps: () => ph.work(['steps'], { leaseFor: 1000 }, async (job) => {
    const hang = async (point: string) => {
      process.send!(point)
      if (job.payload.hang === point && job.attempt === 1) await new Promise(() => undefined)
    }
    await hang('begin')
    const charge = await job.step('charge', async () => {
      await note(ph.pool, job.id, 'charge')
      return { charge: 7 }
    })
    await hang('charged')
    await job.stepTx('book', (tx) => note(tx, job.id, `book ${charge.charge}`))
    await hang('booked')
    job.setResult('shipped')
  }),
  // A job that is completed in its transaction.
  complete: () => ph.work(['complete'], { leaseFor: 1000 }, async (job) => {
    const tx = await ph.pool.connect()
    await tx.query('begin')
    await note(tx, job.id, 'done')
    await job.complete(tx)
    process.send!('completed')
    if (job.attempt === 1) await new Promise(() => undefined)
    await tx.query('commit')
    tx.release()
  }),
}
roles[role]!()
await ph.run(stop.signal)
await ph.close()
process.exit(0)
