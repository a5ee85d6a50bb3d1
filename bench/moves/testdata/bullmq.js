// Adds jobs to BullMQ. A job that fails is tried again in an hour.
import { Queue } from 'bullmq'

for (const { queue, to, attempts, priority } of JSON.parse(process.argv[2])) {
  const q = new Queue(queue, { connection: { url: process.env.REDIS_URL } })
  await q.add(queue, { to, customer: to }, { attempts, priority, backoff: { type: 'fixed', delay: 3_600_000 } })
  await q.close()
}
