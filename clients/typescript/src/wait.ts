import { setMaxListeners } from 'node:events'

/** The pause after an error of the database that passes. */
export const troubleWait = 2000

/** How long a process that is stopping tries to record results and to give leases back. */
export const lastWords = 10_000

/** A controller whose signal any number of tasks listen to. */
export function sharedController(): AbortController {
  const controller = new AbortController()
  setMaxListeners(0, controller.signal)
  return controller
}

/** Waits for a time, or until the signal comes. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve()
    const end = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, milliseconds)
    signal?.addEventListener('abort', end)
  })
}

/** Rejects when the signal comes before the promise is settled. */
export function unlessAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

/** A notification that one task waits for. One that comes while the task is busy is kept. */
export class Bell {
  private wake: (() => void) | undefined

  constructor(private rung = false) {}

  get hasRung(): boolean {
    return this.rung
  }

  ring(): void {
    this.rung = true
    this.wake?.()
  }

  /** Waits for a notification, at most for a time, or until the signal comes. Returns whether there was one. */
  async wait(milliseconds?: number, signal?: AbortSignal): Promise<boolean> {
    if (!this.rung && !signal?.aborted) {
      await new Promise<void>((resolve) => {
        const end = () => {
          clearTimeout(timer)
          signal?.removeEventListener('abort', end)
          this.wake = undefined
          resolve()
        }
        const timer = milliseconds === undefined ? undefined : setTimeout(end, milliseconds)
        signal?.addEventListener('abort', end)
        this.wake = end
      })
    }
    const { rung } = this
    this.rung = false
    return rung
  }
}

/** Bounds how many tasks run at once. */
export class Slots {
  private readonly waiting: (() => void)[] = []

  constructor(private free: number) {}

  async acquire(signal?: AbortSignal): Promise<void> {
    if (this.free > 0) {
      this.free--
      return
    }
    let wake!: () => void
    const turn = new Promise<void>((resolve) => this.waiting.push((wake = resolve)))
    try {
      await unlessAborted(turn, signal)
    } catch (error) {
      const i = this.waiting.indexOf(wake)
      if (i >= 0) this.waiting.splice(i, 1)
      else this.release() // the slot came in the same moment
      throw error
    }
  }

  release(): void {
    const next = this.waiting.shift()
    if (next) next()
    else this.free++
  }
}

/** Runs functions one after another. */
export class Turn {
  private last: Promise<unknown> = Promise.resolve()
  private queued = 0

  get isBusy(): boolean {
    return this.queued > 0
  }

  take<T>(run: () => Promise<T>): Promise<T> {
    this.queued++
    const result = this.last.then(run).finally(() => this.queued--)
    this.last = result.catch(() => undefined)
    return result
  }
}

/**
 * Adapts the size of batches: large enough that taking them costs little, and small enough that one takes about a second,
 * so that other nodes get a share and a crash repeats little.
 */
export class Sizer {
  size: number
  quick = false

  constructor(private readonly most: number) {
    this.size = Math.min(10, most)
  }

  took(n: number, milliseconds: number): void {
    this.quick = milliseconds < 100
    if (milliseconds > 1000) this.size = Math.max(1, Math.floor(Math.min(this.size, n) / 2))
    else if (this.quick && n >= this.size) this.size = Math.min(2 * this.size, this.most)
  }
}

/** Lets timers and the network have a turn, when tasks have kept the process busy for a while. */
export class Breather {
  private since = performance.now()

  /** Returns a promise if it is time to wait. */
  due(): Promise<void> | undefined {
    if (performance.now() - this.since < 10) return undefined
    return new Promise((resolve) => setImmediate(() => {
      this.since = performance.now()
      resolve()
    }))
  }
}
