import { AsyncLocalStorage } from 'node:async_hooks'
import type { ClientBase } from 'pg'
import { clip } from './consume.js'
import { type Database, type DB, leaseTime, period, retry, type Row } from './database.js'
import { invalid, isFinal, isLeaseLost, isOutage, messageOf, Permanent, PosthornError, RetryAfter, Snooze, Suspended, translate } from './errors.js'
import { Event, eventColumns, type Parse } from './event.js'
import { Call, type HandlerContext, stopping } from './hold.js'
import { type Attempts, HeldJob, Job, jobColumns } from './job.js'
import { Failures, type Logger, Trouble } from './log.js'
import type { Telemetry, Traced } from './telemetry.js'
import type { Transactions } from './transaction.js'
import { Bell, Breather, lastWords, pause, troubleWait } from './wait.js'
import type { Watch } from './watch.js'

/** Does a job. An error lets it be tried again; see {@link Permanent}, {@link RetryAfter} and {@link Snooze}. */
export type JobHandler = (job: Job, context: HandlerContext) => unknown

/** Configures a job handler in this process. All times are in milliseconds. */
export interface WorkOptions {
  /** How many handlers run at once in this process. Default: 10. */
  concurrency?: number
  /** The most short jobs that are taken in one call. Long jobs are taken one by one. Default: 1000. */
  batchSize?: number
  /** How long the jobs of a process that has died wait for another worker. Leases are extended while handlers run. Default: one minute. */
  leaseFor?: number
  /** Of one attempt: then its signal comes. 0 for none. Default: one hour. */
  timeout?: number
}

/** Describes the jobs to work on. */
export interface WorkConfig {
  database: Database
  transactions: Transactions
  watch: Watch
  telemetry: Telemetry
  log: Logger
  parse: Parse
  stringify(value: unknown): string
  namespace: string
  node: string
  tags: string[]
  concurrency: number
  batchSize: number
  leaseFor: number
  timeout: number
  handle: JobHandler
}

const heartbeatEvery = 10_000 // at most, so that a job in progress does not count as stalled
const checkEvery = 500 // jobs in progress are compared with the database
const noteAfter = 1000 // a handler that runs for so long has its start recorded
const lookAhead = 100 // how long before their start short jobs are taken
const idlePoll = 1000 // news can be lost
const maxBatch = 1000 // jobs in one statement
const longest = 3600 * 24 * 3600_000 // the longest delay of a retry or a snooze: ten years, whose months have 30 days

/** An error as a job keeps it: the message, and behind an empty line the places of its stack, without the message again. */
function described(error: unknown): string {
  const stack = error instanceof Error && error.stack || ''
  const places = stack.search(/^ +at /m)
  return clip(messageOf(error)) + (places < 0 ? '' : `\n\n${clip(stack.slice(places))}`)
}

/** Works on jobs, while `run` runs. */
export class JobWorker implements Attempts {
  readonly parse: Parse
  private readonly label: string
  private readonly queue: HeldJob[] = []
  private readonly held = new Map<string, HeldJob>()
  private readonly done: HeldJob[] = []
  private completing = false
  private runners = 0
  private average = 0 // of the duration of jobs
  private readonly changed = new Bell()
  private readonly breather = new Breather()
  private readonly failing: Failures
  private readonly taking: Trouble
  private readonly settling: Trouble
  private readonly extending: Trouble
  private work!: AbortSignal

  constructor(private readonly c: WorkConfig) {
    this.parse = c.parse
    this.label = c.tags.length > 0 ? `jobs tagged ${c.tags.join(', ')}` : 'jobs without tags'
    this.failing = new Failures(c.log)
    const trouble = (what: string) => new Trouble(c.log, what, { for: this.label })
    this.taking = trouble('cannot take work yet')
    this.settling = trouble('cannot record the end of jobs yet')
    this.extending = trouble('cannot extend leases of jobs yet')
  }

  stringify(value: unknown): string {
    return this.c.stringify(value)
  }

  /**
   * Works until `stop` comes. Then it takes no more jobs, gives back those that have not begun, and returns when the
   * others are done. The signals of handlers come with `work`; jobs that are not done then go back.
   */
  async run(stop: AbortSignal, work: AbortSignal): Promise<void> {
    this.work = work
    const hurry = () => this.held.forEach((job) => job.abort(stopping))
    const wake = () => this.changed.ring()
    work.addEventListener('abort', hurry)
    stop.addEventListener('abort', wake)
    const ended = new AbortController()
    const every = Math.min(this.c.leaseFor / 3, heartbeatEvery)
    const keeping = [this.repeat(every, ended.signal, () => this.extend()), this.repeat(Math.min(checkEvery, every), ended.signal, () => this.check())]
    try {
      await this.takeJobs(stop)
    } finally {
      await this.giveBack(this.queue.splice(0))
      while (this.held.size > 0 || this.runners > 0) await this.changed.wait()
      ended.abort()
      await Promise.all(keeping)
      work.removeEventListener('abort', hurry)
      stop.removeEventListener('abort', wake)
    }
  }

  private async repeat(milliseconds: number, end: AbortSignal, run: () => Promise<void>): Promise<void> {
    for (;;) {
      await pause(milliseconds, end)
      if (end.aborted) return
      await run()
    }
  }

  /** The number of jobs to take next: one for each idle handler and, if jobs are short, those that will start in a moment. */
  private get room(): number {
    const { concurrency, batchSize } = this.c
    const ahead = this.average > 0 && this.average < lookAhead ? Math.min(2 * batchSize, Math.floor(concurrency * lookAhead / this.average)) : 0
    const n = Math.min(concurrency + ahead - this.queue.length - this.runners, concurrency + 4 * batchSize - this.held.size)
    return n <= Math.min(ahead, batchSize) / 2 ? 0 : Math.min(n, concurrency + batchSize)
  }

  private async takeJobs(stop: AbortSignal): Promise<void> {
    const { namespace, node, tags, leaseFor } = this.c
    const news = this.c.watch.subscribe('jobs')
    try {
      while (!stop.aborted) {
        const n = this.room
        if (n === 0) {
          await this.changed.wait()
          continue
        }
        try {
          const until = Date.now() + leaseFor
          const rows = await this.c.database.claim('claim_jobs(text, text, text[], int, interval)',
            [namespace, node, tags, n, period(leaseFor)], leaseTime(leaseFor), jobColumns)
          this.taking.over()
          this.begin(rows.map((row) => new HeldJob(row, until, this)))
          if (rows.length < n) await this.c.watch.await(news, idlePoll, stop)
        } catch (error) {
          if (isFinal(error)) throw error
          if (!stop.aborted) this.taking.report(error)
          await pause(troubleWait, stop)
        }
      }
    } finally {
      this.c.watch.unsubscribe(news)
    }
  }

  private begin(jobs: HeldJob[]): void {
    for (const job of jobs) {
      const earlier = this.held.get(job.id) // it was reset, or its lease has expired
      if (earlier) this.lost(earlier, new PosthornError('lease_lost', `job ${job.id} was handed out again`))
      this.held.set(job.id, job)
      if (this.work.aborted) job.abort(stopping)
      this.queue.push(job)
    }
    for (let n = jobs.length; n > 0 && this.runners < this.c.concurrency; n--) {
      this.runners++
      void this.runJobs()
    }
  }

  private async runJobs(): Promise<void> {
    for (let job = this.queue.shift(); job; job = this.queue.shift()) {
      if (job.hasEnded) this.forget([job])
      else await this.handle(job)
      if (this.room > 0) this.changed.ring()
      const rest = this.breather.due()
      if (rest) await rest
    }
    this.runners--
    this.changed.ring()
  }

  /** Calls the handler with a job, and records the result. */
  private async handle(job: HeldJob): Promise<void> {
    job.began = performance.now()
    const call = new Call(job, this.c.timeout)
    let error: unknown
    try {
      const run = async () => this.c.handle(new Job(job), call)
      if (this.c.telemetry.isOn) await this.c.telemetry.about({ operation: 'process', group: this.label, handler: this.label, batch: false }, [traced(job)], run)
      else await this.c.handle(new Job(job), call)
    } catch (thrown) {
      error = call.explain(thrown ?? new Error('the handler has thrown nothing'))
    }
    call.end()
    job.took = performance.now() - job.began
    this.average = this.average === 0 ? Math.max(job.took, 0.001) : Math.max(0.001, (7 * this.average + job.took) / 8)
    if (job.hasEnded) this.forget([job])
    else if (error === undefined) this.collect(job)
    else if (this.work.aborted) await this.giveBack([job])
    else if (error instanceof Snooze) await this.snooze(job, error)
    else await this.fail(job, error)
  }

  /** Collects jobs that are done: they are completed together, while the completion of others is under way. */
  private collect(job: HeldJob): void {
    this.done.push(job)
    if (this.completing) return
    this.completing = true
    setImmediate(() => void this.completeAll())
  }

  private async completeAll(): Promise<void> {
    while (this.done.length > 0) {
      const jobs = this.done.splice(0, maxBatch)
      const inTransaction = new Set(jobs.filter((job) => job.isEnding))
      jobs.forEach((job) => (job.isEnding = true))
      const left = new Set(jobs)
      try {
        await this.record(jobs, async () => {
          for (const row of await this.completeTogether(jobs)) left.delete(this.held.get(row[0]!)!)
        })
        for (const job of left) if (!inTransaction.has(job)) void this.completeOne(job)
        this.forget(jobs.filter((job) => !left.has(job) || inTransaction.has(job)))
      } catch (error) {
        if (isOutage(error)) this.abandon(jobs, error)
        else for (const job of jobs) void this.completeOne(job) // the result of one cannot be saved
      }
    }
    this.completing = false
  }

  private completeTogether(jobs: HeldJob[]): Promise<Row[]> {
    const results = jobs.map((job) => job.result ?? null)
    return this.c.database.call('complete_jobs(text, bigint[], int[], bigint[], json[])',
      [this.c.node, ...fences(jobs), jobs.map((job) => Math.round(job.took)), results.some((result) => result !== null) ? results : null], this.limit)
  }

  /** Completes a job that could not be completed with others: an earlier call whose answer was lost may have done so. */
  private async completeOne(job: HeldJob): Promise<void> {
    try {
      await this.record([job], () => this.c.database.call('complete_job(bigint, text, int, int, bigint, json)',
        [job.id, this.c.node, job.attempt, null, Math.round(job.took), job.result ?? null], this.limit))
      this.forget([job])
    } catch (error) {
      if (error instanceof PosthornError && error.code === 'invalid' && job.result !== undefined) {
        await this.fail(job, new Permanent(new Error(`it was done, but its result cannot be saved: ${error.message}`)))
      } else {
        this.abandon([job], error)
      }
    }
  }

  private async fail(job: HeldJob, error: unknown): Promise<void> {
    const retryIn = error instanceof RetryAfter ? period(Math.min(error.milliseconds, longest)) : null
    await this.end(job, async () => {
      const [row] = await this.c.database.call('fail_job(bigint, text, text, int, int, bigint, boolean, interval)',
        [job.id, this.c.node, described(error), job.attempt, null, Math.round(job.took), error instanceof Permanent, retryIn],
        this.limit, 'next_retry_at')
      const last = row![0] === null
      this.failing.report(last, last ? 'a job failed for good' : 'a job failed and is tried again', { job: job.id, title: job.row[2], attempt: job.attempt, error })
    })
  }

  private snooze(job: HeldJob, request: Snooze): Promise<void> {
    return this.end(job, () => this.c.database.call('snooze_job(bigint, text, interval, int, text)',
      [job.id, this.c.node, period(Math.min(request.milliseconds, longest)), job.attempt, clip(request.message)], this.limit))
  }

  /** Returns jobs to the queue at once. The attempts do not count. */
  private async giveBack(jobs: HeldJob[]): Promise<void> {
    if (jobs.length === 0) return
    jobs.forEach((job) => (job.isEnding = true))
    await this.record(jobs, () => this.c.database.call('release_jobs(text, bigint[], int[], text)',
      [this.c.node, ...fences(jobs), 'the worker was told to stop'], this.limit))
      .catch((error: unknown) => this.c.log.warn('cannot give jobs back; their leases expire', { jobs: jobs.length, error }))
    this.forget(jobs)
  }

  /** Records the end of a job. */
  private async end(job: HeldJob, record: () => Promise<unknown>): Promise<void> {
    const inTransaction = job.isEnding
    job.isEnding = true
    try {
      await this.record([job], record)
      this.forget([job])
    } catch (error) {
      if (inTransaction && isLeaseLost(error)) {
        this.c.log.warn('a handler completed its job in a transaction and threw an error: the job is completed, or was taken away if that transaction did not commit', { job: job.id })
        this.forget([job])
      } else {
        this.abandon([job], error)
      }
    }
  }

  private abandon(jobs: HeldJob[], error: unknown): void {
    for (const job of jobs) {
      if (isLeaseLost(error)) this.lost(job, error)
      else this.c.log.error('the end of a job was not recorded; it comes again when its lease has passed', { job: job.id, error })
    }
    this.forget(jobs)
  }

  /** Calls a function that records the ends of jobs, and repeats it after temporary errors while the jobs may be held. */
  private record<T>(jobs: HeldJob[], run: () => Promise<T>): Promise<T> {
    if (!this.c.telemetry.isOn) return this.repeated(run)
    const about = { operation: 'settle' as const, group: this.label, batch: jobs.length !== 1 }
    return this.repeated(() => this.c.telemetry.about(about, jobs.map(traced), run))
  }

  private repeated<T>(run: () => Promise<T>): Promise<T> {
    const began = Date.now()
    return retry({
      outages: true, trouble: this.settling, signal: this.work,
      until: () => Date.now() - began > (this.work.aborted ? Math.min(this.c.leaseFor, lastWords) : this.c.leaseFor),
    }, run)
  }

  private get limit(): number {
    return Math.max(this.c.leaseFor / 3, 1000)
  }

  private lost(job: HeldJob, error: unknown): void {
    if (job.isReported) return
    job.isReported = true
    job.gone(error)
    this.c.log.warn('job lost: it was cancelled, reset or taken by another worker', { job: job.id, attempt: job.attempt })
  }

  private forget(jobs: HeldJob[]): void {
    for (const job of jobs) {
      job.over = true
      if (this.held.get(job.id) === job) this.held.delete(job.id)
    }
    if (this.held.size === 0 || this.room > 0) this.changed.ring()
  }

  /** The jobs whose ends are not being recorded, and whose handlers have not used up all patience. */
  private get kept(): HeldJob[] {
    const { timeout, leaseFor } = this.c
    const now = performance.now()
    return [...this.held.values()].filter((job) => !job.isEnding && !job.over && (timeout <= 0 || job.began === 0 || now - job.began < timeout + leaseFor))
  }

  private async extend(): Promise<void> {
    try {
      await this.compare(this.kept, (jobs) => this.c.database.call('heartbeat_jobs(text, bigint[], int[], interval)', [this.c.node, ...fences(jobs), period(this.c.leaseFor)], this.limit))
      this.extending.over()
    } catch (error) {
      this.extending.report(error)
    }
  }

  /** Ends the handlers of jobs that were cancelled, reset or taken over. Short jobs end before they are looked at. */
  private async check(): Promise<void> {
    const now = performance.now()
    const long = this.kept.filter((job) => job.began > 0 && now - job.began >= checkEvery)
    try {
      await this.compare(long, (jobs) => this.c.database.call('held_jobs(text, bigint[], int[])',
        [this.c.node, ...fences(jobs)], 5000))
      for (const job of long) {
        if (job.isNoted || job.isEnding || now - job.began < noteAfter) continue
        await this.c.database.call('start_job(bigint, text, int)', [job.id, this.c.node, job.attempt])
        job.isNoted = true
      }
    } catch { // heartbeats report it
    }
  }

  private async compare(jobs: HeldJob[], ask: (jobs: HeldJob[]) => Promise<Row[]>): Promise<void> {
    for (let i = 0; i < jobs.length; i += maxBatch) {
      const some = jobs.slice(i, i + maxBatch)
      const held = new Set((await ask(some)).map((row) => row[0]))
      for (const job of some) {
        if (!held.has(job.id) && !job.isEnding && !job.over) this.lost(job, new PosthornError('lease_lost', `job ${job.id} was cancelled, reset or taken by another worker`))
      }
    }
  }

  /** Calls a function that reports on a job that goes on, and repeats it after temporary errors while the job may be held. */
  private async report<T>(job: HeldJob, run: () => Promise<T>): Promise<T> {
    let result!: T
    let isMade = false
    try {
      await this.repeated(() => job.settle(async () => {
        result = await run()
        isMade = true
        return job.isAsleep
      }))
    } catch (error) {
      if (isLeaseLost(error)) this.lost(job, error)
      throw error
    }
    if (!isMade) throw new PosthornError('lease_lost', `the attempt at job ${job.id} has ended`)
    return result
  }

  async progress(job: HeldJob, text: string): Promise<void> {
    await this.report(job, () => this.c.database.call('heartbeat_job(bigint, text, int, interval, json)',
      [job.id, this.c.node, job.attempt, period(this.c.leaseFor), text], this.limit))
  }

  async complete(job: HeldJob, tx: DB): Promise<void> {
    job.isEnding = true // a heartbeat would wait for the transaction, and then not find the job
    try {
      await tx.query({
        text: 'select from posthorn.complete_job($1::bigint, $2::text, $3::int, null, $4::bigint, $5::json)',
        values: [job.id, this.c.node, job.attempt, Math.round(performance.now() - job.began), job.result ?? null],
      })
    } catch (error) {
      job.isEnding = false
      throw translate('complete job', error)
    }
  }

  async saveStep(job: HeldJob, name: string, text: string): Promise<void> {
    await this.report(job, () => this.c.database.call('save_step(bigint, text, text, json, int)', [job.id, this.c.node, name, text, job.attempt], this.limit))
  }

  async inTransaction(job: HeldJob, name: string, run: (tx: ClientBase) => Promise<string>): Promise<string> {
    if (inStep.getStore()) {
      throw invalid(`step "${name}" of job ${job.id} begins within the transaction of another step`,
        'Make the steps one after the other: handlers that hold one transaction and want a second could wait for each other.')
    }
    const tx = await this.c.transactions.begin(leaseTime(this.c.leaseFor), job.signal)
    try {
      const text = await inStep.run(true, () => run(tx.client))
      tx.close()
      await tx.commitAfter(saveStepSQL, [job.id, this.c.node, name, text, job.attempt], this.c.leaseFor)
      return text
    } catch (error) {
      throw translate('save step', error)
    } finally {
      await tx.end(lastWords)
    }
  }

  async sleep(job: HeldJob, name: string, milliseconds: number): Promise<void> {
    const until = await this.report(job, async () => {
      const [row] = await this.c.database.call('sleep_job(bigint, text, text, interval, int)',
        [job.id, this.c.node, name, period(Math.min(milliseconds, longest)), job.attempt], this.limit)
      job.isAsleep = row![0] !== null
      return row![0]
    })
    if (until) throw this.suspend(job, `sleeps until ${until}`)
  }

  async await(job: HeldJob, name: string, type: string, key: string, timeout: number): Promise<Event | undefined> {
    const row = await this.report(job, async () => {
      const [came] = await this.c.database.call('await_event(bigint, text, text, text, text, interval, int)',
        [job.id, this.c.node, name, type, key, period(Math.min(timeout, longest)), job.attempt], this.limit,
        `${eventColumns}, 0, null, timed_out, waits_until`)
      job.isAsleep = came![11] !== null
      return came!
    })
    if (job.isAsleep) throw this.suspend(job, `waits for ${type} of ${key} until ${row[11]}`)
    return row[10] === 't' ? undefined : new Event(row, 0, this.parse)
  }

  private suspend(job: HeldJob, does: string): Suspended {
    const suspended = new Suspended(0, `job ${job.id} ${does}`)
    job.abort(suspended)
    return suspended
  }
}

/** Tells the function of a step in a transaction. */
const inStep = new AsyncLocalStorage<boolean>()

const saveStepSQL = 'select posthorn.save_step($1::bigint, $2::text, $3::text, $4::json, $5::int)'

/** The ids and attempts of jobs, by which the database refuses late reports. */
function fences(jobs: HeldJob[]): [string[], number[]] {
  return [jobs.map((job) => job.id), jobs.map((job) => job.attempt)]
}

/** A job as spans show it: as an event whose type is its title. */
function traced(job: HeldJob): Traced {
  const { row } = job
  return { id: BigInt(job.id), stream: 'jobs', type: row[2]!, payloadText: row[5]!, metadataText: row[6] ?? '{}', delivery: job.attempt }
}
