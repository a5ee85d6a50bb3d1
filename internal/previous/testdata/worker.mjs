// Does in Node what package worker does in Go. The first argument is the client's file, the second the name.
const { Posthorn } = await import(process.argv[2])
const name = process.argv[3]
const ph = await Posthorn.open({ databaseUrl: process.env.DATABASE_URL })
const record = (tx, kind, id) => tx.query('insert into ledger (kind, id, worker) values ($1, $2, $3)', [kind, id, name])
ph.group('ledger', { start: 'beginning', batchSize: 5 }).handleTx('record', 'counted', (tx, event) => record(tx, 'event', event.id))
ph.work(['counted'], (job) => inTransaction(async (tx) => {
  await record(tx, 'job', job.id)
  await job.complete(tx)
}))

const stop = new AbortController()
process.on('SIGTERM', () => stop.abort())
let ended = false
process.stdin.on('end', () => { ended = true }).resume()

async function inTransaction(work) {
  const tx = await ph.pool.connect()
  try {
    await tx.query('begin')
    await work(tx)
    await tx.query('commit')
  } catch (error) {
    await tx.query('rollback')
    throw error
  } finally {
    tx.release()
  }
}

async function publish() {
  while (!ended) {
    await inTransaction(async (tx) => {
      await ph.publish(tx, { type: 'counted', key: name, tags: [`by ${name}`], metadata: { by: name }, payload: { by: name } })
      await ph.enqueue(tx, { title: 'count', tags: ['counted'] })
    })
  }
  console.log('published')
}

await Promise.all([publish(), ph.run(stop.signal)])
await ph.close()
