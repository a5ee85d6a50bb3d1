import { type Database, isDeadline } from './database.js'
import { isOutage, messageOf } from './errors.js'
import { type Logger, Trouble } from './log.js'
import { pause } from './wait.js'
import type { News, Watch } from './watch.js'

const interval = 250 // bounds how late a delayed event may be
const standbyInterval = 1000 // while another process does the upkeep
const together = 60_000
const alone = 600_000
const wakePause = 50

interface Tended {
  [part: string]: unknown
  errors?: Record<string, string>
  news?: News[] // what there may be for workers now
  skipped?: boolean // another process has just done the upkeep
  wake_jobs?: unknown // null if no job waits for an event; "busy" if another process looks for them
}

/** Does the upkeep of the log until the signal comes. Any number of processes may do so at once. */
export async function upkeep(database: Database, watch: Watch, log: Logger, stop: AbortSignal): Promise<void> {
  const trouble = new Trouble(log, 'upkeep could not run')
  const failing: Record<string, string> = {}
  let reported = '[]'
  let following: Promise<void> | undefined
  let turn = -standbyInterval // the last one that this process had: another connection of the pool may miss it
  while (!stop.aborted) {
    try {
      const tended = await tend(database)
      trouble.over()
      for (const kind of tended.news ?? []) watch.announce(kind)
      if (!tended.skipped) turn = performance.now()
      for (const [part, outcome] of Object.entries(tended)) if (outcome !== 'busy') delete failing[part] // of others, the errors still stand
      Object.assign(failing, tended.errors)
      const errors = JSON.stringify(Object.entries(failing).sort())
      if (errors !== reported && errors !== '[]') log.warn('upkeep has an error', { errors })
      reported = errors
      if (tended.wake_jobs != null && !following) following = wakeJobs(database, watch, stop).finally(() => (following = undefined))
    } catch (error) {
      if (!stop.aborted) trouble.report(error)
      turn = performance.now()
    }
    await pause(performance.now() - turn < standbyInterval ? interval : standbyInterval, stop)
  }
  await following
}

/** Does what is due in one statement, or each part in its own if that takes too long: a slow part does not undo the others. */
async function tend(database: Database): Promise<Tended> {
  try {
    return JSON.parse((await database.value('tend(boolean)', [true], together)) ?? '{}')
  } catch (error) {
    if (!isDeadline(error)) throw error
  }
  const all: Tended & { errors: Record<string, string> } = { errors: {}, wake_jobs: null }
  for (const [part] of await database.call('upkeep_parts()', [], together, 'unnest(upkeep_parts)')) {
    try {
      const tended: Tended = JSON.parse((await database.value('tend_part(text)', [part], alone)) ?? '{}')
      Object.assign(all.errors, tended.errors)
      if (part === 'wake_jobs') all.wake_jobs = tended.wake_jobs
    } catch (error) {
      if (isOutage(error) && !isDeadline(error)) throw error
      all.errors[part!] = messageOf(error)
    }
  }
  return all
}

/** Wakes jobs soon after each news of the log, until no job waits for an event. */
async function wakeJobs(database: Database, watch: Watch, stop: AbortSignal): Promise<void> {
  const news = watch.subscribe('events')
  try {
    for (let again = true; !stop.aborted;) {
      if (!again) await watch.await(news, together, stop)
      const tended: Tended = JSON.parse((await database.value('tend_part(text)', ['wake_jobs'], together)) ?? '{}')
      if (tended.wake_jobs == null) return
      again = tended.wake_jobs === 'busy'
      await pause(wakePause, stop)
    }
  } catch { // the upkeep itself makes the same look, and reports the error
  } finally {
    watch.unsubscribe(news)
  }
}
