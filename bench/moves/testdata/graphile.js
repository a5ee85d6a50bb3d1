// Adds jobs to graphile-worker.
import { makeWorkerUtils } from 'graphile-worker'

const utils = await makeWorkerUtils({ connectionString: process.env.DATABASE_URL })
await utils.migrate()
for (const { queue, to, attempts, priority } of JSON.parse(process.argv[2])) {
  await utils.addJob(queue, { to, customer: to }, { maxAttempts: attempts, priority })
}
await utils.release()
