import type { ClientBase } from 'pg'
import { type DB, type Row } from './database.js'
import { invalid, Permanent, PosthornError } from './errors.js'
import { type Event, type Parse, parsePayload } from './event.js'
import { Hold } from './hold.js'

/** The columns of a job, in the order of the constructor of {@link HeldJob}. */
export const jobColumns = `id, attempt, title, coalesce(description, ''), to_json(tags), payload, metadata, priority, retry_count,
  max_retries, extract(epoch from run_at), extract(epoch from created_at), progress, steps`

const mostSteps = 1000

/** What a job needs of its worker. */
export interface Attempts {
  parse: Parse
  stringify(value: unknown): string
  progress(job: HeldJob, text: string): Promise<void>
  complete(job: HeldJob, tx: DB): Promise<void>
  saveStep(job: HeldJob, name: string, text: string): Promise<void>
  inTransaction(job: HeldJob, name: string, run: (tx: ClientBase) => Promise<string>): Promise<string>
  sleep(job: HeldJob, name: string, milliseconds: number): Promise<void>
  await(job: HeldJob, name: string, type: string, key: string, timeout: number): Promise<Event | undefined>
}

/** A job that this process has. */
export class HeldJob extends Hold {
  readonly id: string
  readonly attempt: number
  began = 0 // in a handler, by the clock performance.now
  took = 0 // milliseconds
  isNoted = false // the log has its start
  isReported = false // as lost
  isEnding = false // its end is being recorded, or a transaction of the handler finishes it
  isAsleep = false // the attempt has ended: it goes on later
  result: string | undefined
  private saved: Record<string, unknown> | undefined
  private readonly named = new Set<string>()

  constructor(readonly row: Row, until: number, readonly attempts: Attempts) {
    super(until)
    this.id = row[0]!
    this.attempt = Number(row[1])
  }

  /** Whether the attempt has ended before its handler has. */
  get hasEnded(): boolean {
    return this.isLost || this.isAsleep
  }

  /** Begins a step or a sleep: returns the result that an earlier attempt has saved, if one has. */
  use(name: string): { value: unknown } | undefined {
    this.saved ??= this.row[13] ? (this.attempts.parse(this.row[13]) as Record<string, unknown>) : {}
    if (this.named.has(name)) {
      throw invalid(`job ${this.id} has used the name "${name}" before in this attempt`,
        'Each step and each sleep of a job needs a name of its own. In a loop, put the number of the round into it.')
    }
    if (!name || Buffer.byteLength(name) > 255 || /\p{Cc}/u.test(name)) {
      throw invalid(`${JSON.stringify(name.slice(0, 100))} is no name of a step`, 'Use a few words that say what it does, such as charge.')
    }
    this.named.add(name)
    if (Object.hasOwn(this.saved, name)) return { value: this.saved[name] }
    if (new Set([...Object.keys(this.saved), ...this.named]).size > mostSteps) {
      throw invalid(`job ${this.id} has ${mostSteps} steps already`, 'Let a step do more, and report the rest as progress.')
    }
    return undefined
  }
}

/** A job that a handler works on. */
export class Job {
  readonly id: bigint
  /** From 1. */
  readonly attempt: number
  readonly title: string
  readonly description: string
  readonly priority: number
  /** Failed attempts. */
  readonly retryCount: number
  readonly maxRetries: number
  /** The payload as JSON, as it was enqueued. */
  readonly payloadText: string
  private parsed: { payload: unknown } | undefined

  /** @internal */
  constructor(private readonly held: HeldJob) {
    const { row } = held
    this.id = BigInt(row[0]!)
    this.attempt = held.attempt
    this.title = row[2]!
    this.description = row[3]!
    this.payloadText = row[5]!
    this.priority = Number(row[7])
    this.retryCount = Number(row[8])
    this.maxRetries = Number(row[9])
  }

  /** The payload, read by {@link Options.parse}. One that cannot be read is a permanent error. */
  get payload(): any {
    this.parsed ??= { payload: parsePayload(this.payloadText, this.held.attempts.parse, this.title) }
    return this.parsed.payload
  }

  get tags(): string[] {
    return JSON.parse(this.held.row[4]!)
  }

  get metadata(): Record<string, any> {
    return JSON.parse(this.held.row[6] ?? '{}')
  }

  get runAt(): Date {
    return new Date(Number(this.held.row[10]) * 1000)
  }

  get createdAt(): Date {
    return new Date(Number(this.held.row[11]) * 1000)
  }

  /** The last value that an earlier attempt gave {@link progress}; undefined if there is none. */
  get lastProgress(): any {
    const text = this.held.row[12]
    return text == null ? undefined : this.held.attempts.parse(text)
  }

  /** Records progress, for people and for later attempts. It fails if the job was cancelled, reset or taken by another worker. */
  progress(value: unknown): Promise<void> {
    return this.held.attempts.progress(this.held, this.encode(value, 'progress'))
  }

  /** Sets the result of the job, which is saved when the job completes. */
  setResult(value: unknown): void {
    this.held.result = this.encode(value, 'result')
  }

  /**
   * Completes the job in the handler's transaction: both commit together, so the effect of the transaction happens exactly
   * once. The handler then commits and returns. It fails if the job was cancelled, reset or taken by another worker.
   */
  complete(tx: DB): Promise<void> {
    return this.held.attempts.complete(this.held, tx)
  }

  /**
   * Makes a step of the job, unless it is saved. The first attempt that gets there calls the function, and saves what it
   * returns: up to 64 KiB of JSON. Later attempts get that value, and do not call the function. If the process dies between
   * the end of the function and the save, the function is called again; {@link stepTx} has no such gap. Each step, sleep and
   * wait has a name of its own within its job.
   */
  async step<T>(name: string, run: () => T | Promise<T>): Promise<T> {
    const saved = this.held.use(name)
    if (saved) return saved.value as T
    const text = this.encodeStep(name, await run())
    await unlessUnsavable(this.held.attempts.saveStep(this.held, name, text))
    return this.held.attempts.parse(text)
  }

  /**
   * Is {@link step} with the client of a transaction, in which the result is saved too: the step happens exactly once. The
   * function must not begin another such step. It needs a connection, see {@link Options.maxConnections}.
   */
  async stepTx<T>(name: string, run: (tx: ClientBase) => T | Promise<T>): Promise<T> {
    const saved = this.held.use(name)
    if (saved) return saved.value as T
    const text = await unlessUnsavable(this.held.attempts.inTransaction(this.held, name, async (tx) => this.encodeStep(name, await run(tx))))
    return this.held.attempts.parse(text)
  }

  /**
   * Lets the job go on after so many milliseconds, without a worker meanwhile. The first attempt that gets there ends with
   * an error that the handler lets pass. The handler is called again when the time has come.
   */
  async sleep(name: string, milliseconds: number): Promise<void> {
    this.held.use(name)
    await this.held.attempts.sleep(this.held, name, milliseconds)
  }

  /**
   * Returns the first event of a type and key that was published since the job was enqueued. If there is none, the job
   * waits for it without a worker, as with {@link sleep}. If none comes within so many milliseconds, it throws a
   * PosthornError with the code timed_out.
   */
  async await(name: string, type: string, key: string, timeout: number): Promise<Event> {
    this.held.use(name)
    const event = await this.held.attempts.await(this.held, name, type, key, timeout)
    if (!event) throw new PosthornError('timed_out', `job ${this.id}: ${type} of ${key} has not come in time`)
    return event
  }

  private encode(value: unknown, what: string): string {
    const text = this.held.attempts.stringify(value ?? null)
    if (text === undefined) throw invalid(`${what} of job ${this.id} is no JSON`, 'Give a value that can be written as JSON.')
    return text
  }

  private encodeStep(name: string, value: unknown): string {
    try {
      return this.encode(value, `result of step "${name}"`)
    } catch (error) {
      throw new Permanent(error)
    }
  }
}

/** Marks the error of a result that no attempt can save: another one would repeat the effect in vain. */
async function unlessUnsavable<T>(save: Promise<T>): Promise<T> {
  try {
    return await save
  } catch (error) {
    if (error instanceof PosthornError && (error.code === 'invalid' || error.code === 'conflict')) throw new Permanent(error)
    throw error
  }
}
