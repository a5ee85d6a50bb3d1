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

/** The state of a job. */
export interface JobState {
  id: bigint
  title: string
  status: 'PENDING' | 'PROCESSING' | 'COMPLETED' | 'FAILED' | 'CANCELLED'
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
    await this.run('seek', 'seek($1::text, $2::text, $3::timestamptz)', [this.namespace, group, instantOf(to)])
  }

  /** Pauses a group: leases in flight go on. */
  async pauseGroup(group: string): Promise<void> {
    await this.run('pause group', 'pause_group($1::text, $2::text)', [this.namespace, group])
  }

  async resumeGroup(group: string): Promise<void> {
    await this.run('resume group', 'resume_group($1::text, $2::text)', [this.namespace, group])
  }

  /** The dead letters of a group. */
  async deadLetters(group: string, filter: DeadLetterFilter = {}): Promise<DeadLetter[]> {
    const rows = await this.database.query('list dead letters', `
      select id, group_name, coalesce(subscription, ''), event_id, stream, type, coalesce(key, ''), payload, attempts, coalesce(reason, ''),
        coalesce(error, ''), extract(epoch from failed_at)
      from posthorn.list_dead_letters($1::text, $2::text, $3::jsonb)`, [this.namespace, group, documentOf(filter)])
    return rows.map((row) => ({
      id: BigInt(row[0]!), group: row[1]!, subscription: row[2]!, event: BigInt(row[3]!), stream: row[4]!, type: row[5]!, key: row[6]!,
      payloadText: row[7]!, attempts: Number(row[8]), reason: row[9]!, error: row[10]!, failedAt: new Date(Number(row[11]) * 1000),
    }))
  }

  /** Hands dead letters out again, with all their attempts, and returns their number. */
  async redrive(group: string, filter: DeadLetterFilter = {}): Promise<number> {
    return Number(await this.run('redrive', 'redrive($1::text, $2::text, $3::jsonb)', [this.namespace, group, documentOf(filter)]))
  }

  /** Discards dead letters, and returns their number. */
  async discard(group: string, filter: DeadLetterFilter = {}): Promise<number> {
    return Number(await this.run('discard', 'discard($1::text, $2::text, $3::jsonb)', [this.namespace, group, documentOf(filter)]))
  }

  async job(id: bigint): Promise<JobState> {
    const [row] = await this.database.query('get job', `
      select id, title, status, attempt, progress, result, error_message from posthorn.get_job($1::bigint, $2::text)`, [id, this.namespace])
    const [, title, status, attempt, progress, result, error] = row as Row
    return {
      id, title: title!, status: status as JobState['status'], attempt: Number(attempt), progressText: progress ?? undefined,
      resultText: result ?? undefined, errorMessage: error ?? undefined,
    }
  }

  /** Cancels a job that is not finished. */
  async cancelJob(id: bigint, reason?: string): Promise<void> {
    await this.run('cancel job', 'cancel_job($1::bigint, $2::text, $3::text)', [id, reason ?? null, this.namespace])
  }

  /** Lets a job that has failed, or waits for its next attempt, start at once. */
  async retryJob(id: bigint, reason?: string): Promise<void> {
    await this.run('reset job', 'reset_job($1::bigint, $2::text, $3::text)', [id, reason ?? null, this.namespace])
  }

  private run(verb: string, call: string, values: unknown[]): Promise<string | null> {
    return this.database.value(verb, `select posthorn.${call}`, values)
  }
}

function documentOf(filter: DeadLetterFilter): string {
  const { ids, event, failedBefore, failedAfter, ...others } = filter
  return JSON.stringify({ ...others, ids: ids?.map(String), event: event?.toString(), failed_before: failedBefore, failed_after: failedAfter })
}
