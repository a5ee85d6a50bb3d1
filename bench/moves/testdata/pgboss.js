// Sends jobs to pg-boss. A job that fails is tried again in an hour.
import { PgBoss } from 'pg-boss'

const boss = new PgBoss(process.env.DATABASE_URL)
await boss.start()
for (const { queue, to, attempts, priority } of JSON.parse(process.argv[2])) {
  await boss.send(queue, { to, customer: to }, { retryLimit: attempts - 1, retryDelay: 3600, priority })
}
await boss.stop()
