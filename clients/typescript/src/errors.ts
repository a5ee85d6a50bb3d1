/** What kind of error a {@link PosthornError} is. */
export type ErrorCode =
  | 'not_found' // a namespace, group, job or other thing does not exist
  | 'conflict' // the call contradicts the existing state
  | 'lease_lost' // the lease has expired or ended: its events or its job belong to another worker
  | 'invalid' // an argument is not valid
  | 'refused' // the state of the thing, or the rights of the caller, do not allow the call
  | 'not_migrated' // the database lacks the schema
  | 'moved' // the namespace is closed, since it moves to another database: see Moved
  | 'timed_out' // the event that a job waited for has not come in time
  | 'unconfirmed' // the transaction is committed, and a failover may lose it
  | 'closed' // the client is closed

/** An error of Posthorn. Its cause, if it has one, is the error of Postgres. */
export class PosthornError extends Error {
  override readonly name = 'PosthornError'

  constructor(
    readonly code: ErrorCode,
    message: string,
    /** Advice on how to correct the error. */
    readonly hint?: string,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

/** The namespace is closed, since it moves to another database. Groups and workers wait until it is opened again. */
export class Moved extends PosthornError {
  constructor(
    message: string,
    /** The database that it has moved to, as the operator who closed it named it, or ''. */
    readonly movedTo: string,
    hint?: string,
    options?: ErrorOptions,
  ) {
    super('moved', message, hint, options)
  }
}

/** A transaction is committed and visible, but its wait for a synchronous standby was cancelled: a failover may lose it. */
export class Unconfirmed extends PosthornError {
  constructor(/** The result of the statement. */ readonly result: unknown) {
    super('unconfirmed',
      "the transaction is committed, but the server's wait for its synchronous standby was cancelled: a failover may lose it",
      'Look whether it is still there before you repeat it, or publish with a dedupKey, with which repeating is safe.')
  }
}

/** An error that another attempt would not change: the event becomes a dead letter, and the job fails. */
export class Permanent extends Error {
  override readonly name = 'Permanent'
  constructor(cause: unknown) {
    super(messageOf(cause), { cause })
  }
}

/** An error after which the next attempt follows in so many milliseconds. The failed attempt counts. */
export class RetryAfter extends Error {
  override readonly name = 'RetryAfter'
  constructor(
    readonly milliseconds: number,
    cause: unknown = 'the handler asked for another attempt',
  ) {
    super(messageOf(cause), { cause })
  }
}

/** Puts the event or job off for so many milliseconds. The attempt does not count. */
export class Snooze extends Error {
  override readonly name: string = 'Snooze'
  constructor(
    readonly milliseconds: number,
    message = `snoozed for ${milliseconds} ms`,
  ) {
    super(message)
  }
}

/** The attempt at a job ends here, and goes on later. Handlers let it pass. */
export class Suspended extends Snooze {
  override readonly name = 'Suspended'
}

/**
 * The error of a handler of batches in which some events have failed and all others have succeeded: the errors by the
 * ids of the events.
 */
export class EventErrors extends Error {
  override readonly name = 'EventErrors'
  constructor(readonly failures: ReadonlyMap<bigint, unknown>) {
    super(`${failures.size} event${failures.size === 1 ? '' : 's'} of the batch failed`)
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

export function invalid(message: string, hint: string): PosthornError {
  return new PosthornError('invalid', message, hint)
}

export function isLeaseLost(error: unknown): boolean {
  return error instanceof PosthornError && error.code === 'lease_lost'
}

const codes: Record<string, ErrorCode> = {
  PH001: 'not_found',
  PH002: 'conflict',
  PH003: 'lease_lost',
  PH004: 'invalid',
  PH005: 'refused',
  PH008: 'moved',
}

/** The SQLSTATE of an error of the server, also of one that has been translated. */
export function sqlState(error: unknown): string | undefined {
  for (let e = error; e instanceof Error; e = e.cause) {
    const code = (e as { code?: unknown }).code
    if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code)) return code
  }
  return undefined
}

/** Turns errors that SQL functions raise into {@link PosthornError}s. Others stay as they are. */
export function translate(verb: string, error: unknown): unknown {
  const state = sqlState(error)
  const code = state && codes[state]
  const { detail, hint, constraint } = error as { detail?: string; hint?: string; constraint?: string }
  if (code && !(error instanceof PosthornError)) {
    const message = `${verb}: ${messageOf(error)}${detail ? `: ${detail}` : ''}`
    if (code === 'moved') return new Moved(message, constraint ?? '', hint, { cause: error })
    return new PosthornError(code, message, hint, { cause: error })
  }
  if (state === '42501') {
    return new PosthornError('refused', `${verb}: ${messageOf(error)}`,
      'Grant the user of the database URL the role that may do this: posthorn_publisher publishes, enqueues and schedules, posthorn_consumer handles, works and reads, and posthorn_admin does everything.',
      { cause: error })
  }
  return error
}

/** Whether a retry would have the same error. A namespace that is closed may be opened again. */
export function isFinal(error: unknown): boolean {
  return error instanceof PosthornError && !['moved', 'timed_out', 'unconfirmed'].includes(error.code)
}

/** Whether a transaction failed only because of a concurrent one. */
export function isCollision(error: unknown): boolean {
  return ['40001', '40P01', '55P03'].includes(sqlState(error) ?? '')
}

/** Whether the server answered that it accepts no connections yet, or that it ended one for a restart. */
export function isStarting(error: unknown): boolean {
  return ['57P01', '57P02', '57P03'].includes(sqlState(error) ?? '')
}

/**
 * Whether the connection is not usable any more, or its server cannot work: it is shutting down, lacks memory, disk or
 * connections, is a standby, or did not answer. An error without SQLSTATE is of the network or a deadline.
 */
export function isOutage(error: unknown): boolean {
  if (error instanceof PosthornError) return false
  const state = sqlState(error)
  return state === undefined || /^(08|53|57|58|XX)/.test(state) || state === '25006'
}
