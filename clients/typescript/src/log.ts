import { messageOf } from './errors.js'

/** Receives warnings about errors that are retried. */
export interface Logger {
  info(message: string, attributes?: Record<string, unknown>): void
  warn(message: string, attributes?: Record<string, unknown>): void
  error(message: string, attributes?: Record<string, unknown>): void
}

const write = (level: 'warn' | 'error') => (message: string, attributes: Record<string, unknown> = {}) => {
  const text = Object.entries(attributes).map(([name, value]) => `${name}=${JSON.stringify(messageOf(value))}`)
  console[level]([`posthorn: ${message}`, ...text].join(' '))
}

/** Writes warnings and errors to the console. */
export const consoleLogger: Logger = { info: () => undefined, warn: write('warn'), error: write('error') }

/** Logs errors of one activity that is retried: once when it begins to fail, and once when it works again. */
export class Trouble {
  private since = 0

  constructor(
    private readonly log: Logger,
    private readonly what: string,
    private readonly attributes: Record<string, unknown> = {},
  ) {}

  report(error: unknown): void {
    if (this.since > 0) return
    this.since = Date.now()
    this.log.warn(`${this.what}, trying again`, { ...this.attributes, error })
  }

  over(): void {
    if (this.since > 0) this.log.info('trouble is over', { ...this.attributes, was: this.what, milliseconds: Date.now() - this.since })
    this.since = 0
  }
}

const mostFailures = 20
const failurePeriod = 10_000

/** Logs failures of handlers: a limited number in each period, and then the number of those that it has left out. */
export class Failures {
  private began = 0
  private logged = 0
  private leftOut = 0

  constructor(private readonly log: Logger) {}

  report(last: boolean, message: string, attributes: Record<string, unknown>): void {
    if (Date.now() - this.began > failurePeriod) {
      if (this.leftOut > 0) this.log.warn('more handlers have failed than are logged', { left_out: this.leftOut })
      this.began = Date.now()
      this.logged = this.leftOut = 0
    }
    if (this.logged++ >= mostFailures) this.leftOut++
    else this.log[last ? 'error' : 'warn'](message, attributes)
  }
}
