import type { Database, Row } from './database.js'
import type { Moment } from './group.js'
import { instantOf } from './read.js'

/** Selects dead letters. Without a field it selects all. */
export interface DeadLetterFilter {
  ids?: bigint[]
  event?: bigint
  type?: string
  key?: string
  subscription?: string
  reason?: string
  cause?: string
  /** A text that the error contains. */
  error?: string
  failedBefore?: Date
  failedAfter?: Date
  limit?: number
  offset?: number
}

/** An event that has failed for good. */
export interface DeadLetter {
  id: bigint
  group: string
  subscription: string
  event: bigint
  stream: string
  type: string
  key: string
  payloadText: string
  attempts: number
  reason: string
  error: string
  failedAt: Date
}

export type JobStatus = 'PENDING' | 'PROCESSING' | 'COMPLETED' | 'FAILED' | 'CANCELLED'

/** Why a job does not run, or that it runs, or how it ended. */
export type JobStateName = 'ready' | 'later' | 'retry' | 'asleep' | 'waiting for an event' | 'behind other jobs' | 'held back by a limit' | 'paused'
  | 'running' | 'completed' | 'failed' | 'cancelled'

/** Selects jobs. Without a field it selects the oldest 20. */
export interface JobFilter {
  status?: JobStatus
  state?: JobStateName
  /** Jobs that have one of these tags. */
  tags?: string[]
  newestFirst?: boolean
  limit?: number
  offset?: number
}

/** The state of a job. */
export interface JobState {
  id: bigint
  title: string
  status: JobStatus
  state: JobStateName
  /** A sentence about the state. */
  why: string
  attempt: number
  /** As JSON; undefined if there is none. */
  progressText: string | undefined
  resultText: string | undefined
  errorMessage: string | undefined
}

/** Looks at a namespace, and operates it. The command posthorn and the HTTP API do more. */
export class Admin {
  /** @internal */
  constructor(private readonly database: Database, private readonly namespace: string) {}

  /** Moves a group: back, to handle events again, or forward, to pass over them. */
  async seek(group: string, to: Moment): Promise<void> {
    await this.database.value('seek(text, text, timestamptz)', [this.namespace, group, instantOf(to)])
  }

  /** Pauses a group: leases in flight go on. */
  async pauseGroup(group: string): Promise<void> {
    await this.database.value('pause_group(text, text)', [this.namespace, group])
  }

  async resumeGroup(group: string): Promise<void> {
    await this.database.value('resume_group(text, text)', [this.namespace, group])
  }

  /** The dead letters of a group. */
  async deadLetters(group: string, filter: DeadLetterFilter = {}): Promise<DeadLetter[]> {
    const rows = await this.database.call('list_dead_letters(text, text, jsonb)', [this.namespace, group, documentOf(filter)], undefined, `
      id, group_name, coalesce(subscription, ''), event_id, stream, type, coalesce(key, ''), payload, attempts, coalesce(reason, ''),
      coalesce(error, ''), extract(epoch from failed_at)`)
    return rows.map((row) => ({
      id: BigInt(row[0]!), group: row[1]!, subscription: row[2]!, event: BigInt(row[3]!), stream: row[4]!, type: row[5]!, key: row[6]!,
      payloadText: row[7]!, attempts: Number(row[8]), reason: row[9]!, error: row[10]!, failedAt: new Date(Number(row[11]) * 1000),
    }))
  }

  /** Hands dead letters out again, with all their attempts, and returns their number. */
  async redrive(group: string, filter: DeadLetterFilter = {}): Promise<number> {
    return Number(await this.database.value('redrive(text, text, jsonb)', [this.namespace, group, documentOf(filter)]))
  }

  /** Discards dead letters, and returns their number. */
  async discard(group: string, filter: DeadLetterFilter = {}): Promise<number> {
    return Number(await this.database.value('discard(text, text, jsonb)', [this.namespace, group, documentOf(filter)]))
  }

  async job(id: bigint): Promise<JobState> {
    const [row] = await this.database.call('get_job(bigint, text)', [id, this.namespace], undefined, jobColumns)
    return jobOf(row!)
  }

  async jobs(filter: JobFilter = {}): Promise<JobState[]> {
    const { status, state, tags, limit, offset, newestFirst } = filter
    const rows = await this.database.call('list_jobs(text, text, text[], boolean, int, bigint, boolean, text)',
      [this.namespace, status, tags ?? [], null, limit ?? 20, offset ?? 0, newestFirst ?? false, state], undefined, jobColumns)
    return rows.map(jobOf)
  }

  /** Cancels a job that is not finished. */
  async cancelJob(id: bigint, reason?: string): Promise<void> {
    await this.database.value('cancel_job(bigint, text, text)', [id, reason ?? null, this.namespace])
  }

  /** Lets a job that has failed, or waits for its next attempt, start at once. */
  async retryJob(id: bigint, reason?: string): Promise<void> {
    await this.database.value('reset_job(bigint, text, text)', [id, reason ?? null, this.namespace])
  }
}

const jobColumns = 'id, title, status, state, why, attempt, progress, result, error_message'

function jobOf([id, title, status, state, why, attempt, progress, result, error]: Row): JobState {
  return {
    id: BigInt(id!), title: title!, status: status as JobStatus, state: state as JobStateName, why: why!, attempt: Number(attempt), progressText: progress ?? undefined,
    resultText: result ?? undefined, errorMessage: error ?? undefined,
  }
}

function documentOf(filter: DeadLetterFilter): string {
  const { ids, event, failedBefore, failedAfter, ...others } = filter
  return JSON.stringify({ ...others, ids: ids?.map(String), event: event?.toString(), failed_before: failedBefore, failed_after: failedAfter })
}
