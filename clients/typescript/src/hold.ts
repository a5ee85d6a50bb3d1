import { isCollision, isFinal, isLeaseLost, messageOf, PosthornError } from './errors.js'
import { sharedController, Turn } from './wait.js'

/**
 * One lease or job that this process has. Statements about it run one after another, so that a heartbeat never waits for
 * a row that is being deleted, and never takes a finished lease for lost.
 */
export class Hold {
  /** Whether it is finished or lost: there are no more statements about it. */
  over = false
  private doubt = false // the result of a statement is unknown: the hold may be finished
  private readonly turn = new Turn()
  private controller: AbortController | undefined // made when somebody asks for the signal

  /** No other process can take it before `until`. */
  constructor(private until: number) {}

  /** Comes when the hold is lost, or the process stops and waits for its handler no longer. */
  get signal(): AbortSignal {
    this.controller ??= sharedController()
    return this.controller.signal
  }

  get isAborted(): boolean {
    return this.controller?.signal.aborted ?? false
  }

  get isLost(): boolean {
    return this.isAborted && isLeaseLost(this.signal.reason)
  }

  get isBusy(): boolean {
    return this.turn.isBusy
  }

  abort(reason: unknown): void {
    this.controller ??= sharedController()
    if (!this.isAborted) this.controller.abort(reason)
  }

  extended(until: number): void {
    this.until = Math.max(this.until, until)
  }

  /** Notes that the database refuses the hold to this process, unless an earlier statement may have finished it. */
  gone(error: unknown): void {
    this.over = true
    if (!this.doubt || Date.now() > this.until) this.abort(error)
  }

  /** Runs a statement about the hold. It returns whether it has ended the hold. */
  settle(run: () => Promise<boolean>): Promise<void> {
    return this.turn.take(async () => {
      if (this.over) {
        if (this.isLost) throw this.signal.reason
        return
      }
      try {
        this.over = await run()
        this.doubt = false
      } catch (error) {
        if (isLeaseLost(error)) {
          this.gone(error)
          if (!this.isLost) return // an earlier statement, whose answer was lost, has ended it
        } else if (!isFinal(error) && !isCollision(error)) {
          this.doubt = true
        }
        throw error
      }
    })
  }
}

export const stopping = new PosthornError('closed', 'the client was told to stop, and its time to drain is over')

/** What a handler gets beside its event or job. */
export interface HandlerContext {
  /** Comes when the handler has used up its time, has lost its event or job, or the client stops. Return then. */
  readonly signal: AbortSignal
}

/** One call of a handler. Its signal is made when the handler asks for it: most never do. */
export class Call implements HandlerContext {
  private controller: AbortController | undefined
  private timer: NodeJS.Timeout | undefined
  private readonly began = performance.now()
  private readonly passOn = () => this.controller!.abort(this.hold.signal.reason)

  constructor(private readonly hold: Hold, private readonly timeout: number) {}

  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController()
      if (this.hold.signal.aborted) this.passOn()
      else this.hold.signal.addEventListener('abort', this.passOn)
      if (this.timeout > 0) {
        this.timer = setTimeout(() => this.controller!.abort(new DOMException(`the handler has used up its time of ${this.timeout} ms`, 'TimeoutError')),
          this.timeout - (performance.now() - this.began))
      }
    }
    return this.controller.signal
  }

  end(): void {
    if (!this.controller) return
    clearTimeout(this.timer)
    this.hold.signal.removeEventListener('abort', this.passOn)
  }

  /** The error of a handler, with the reason if it has used up its time. */
  explain(error: unknown): unknown {
    const reason: unknown = this.controller?.signal.reason
    return isTimeout(reason) && error !== reason ? new DOMException(`${reason.message}: ${messageOf(error)}`, 'TimeoutError') : error
  }
}

/** Whether a handler has failed because it has used up its time. */
export function isTimeout(error: unknown): error is DOMException {
  return error instanceof DOMException && error.name === 'TimeoutError'
}
