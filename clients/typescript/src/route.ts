import type { ClientBase } from 'pg'
import { invalid } from './errors.js'
import type { Event } from './event.js'
import type { Call } from './hold.js'

/** Whether a pattern matches a type: * stands for one dotted part, > for one or more that follow. */
export function matches(pattern: string, name: string): boolean {
  const wanted = pattern.split('.')
  const parts = name.split('.')
  for (let i = 0; i < wanted.length; i++) {
    if (wanted[i] === '>' && i === wanted.length - 1) return i < parts.length
    if (i >= parts.length || (wanted[i] !== '*' && wanted[i] !== parts[i])) return false
  }
  return wanted.length === parts.length
}

export function checkPatterns(patterns: string[], of: string): void {
  for (const pattern of patterns) {
    const parts = pattern.split('.')
    const bad = parts.some((part, i) => part === '' || (part === '>' && i < parts.length - 1) || (part.length > 1 && /[*>]/.test(part)))
    if (bad || Buffer.byteLength(pattern) > 255 || /\p{Cc}/u.test(pattern)) {
      throw invalid(`${of}: ${JSON.stringify(pattern)} is not a pattern`, 'Write it like order.placed, order.* or order.>.')
    }
  }
}

/** A handler of a group. It handles the events of the subscription of its name if it has no patterns. */
export interface RegisteredHandler {
  name: string
  patterns: string[]
  formerly: string[] // names that it had before
  transactional: boolean
  batch: boolean
  call(events: Event[], call: Call, tx: ClientBase | undefined): unknown
}

/** A handler that this process lacks and another node has. */
export interface OtherHandler {
  name: string
  patterns: string[]
}

/** The handlers of an event. */
export interface Route {
  plain: RegisteredHandler[]
  transactional: RegisteredHandler[]
  elsewhere: string[] // handlers that other nodes have
  unknown: string[] // subscriptions without a known handler
}

const mostRoutes = 1000 // that are remembered, since there may be any number of types

/** Knows the handlers of a group: those of this process and, by name, those of other live nodes. */
export class Routes {
  handlers: RegisteredHandler[] = []
  private others: OtherHandler[] = []
  private names = new Map<string, string>() // the present names of handlers that were renamed
  private byType = new Map<string, Route>()
  private byOwed = new Map<string, Route>()

  get transactional(): boolean {
    return this.handlers.some((h) => h.transactional)
  }

  get batches(): boolean {
    return this.handlers.some((h) => h.batch)
  }

  add(handler: RegisteredHandler): void {
    this.handlers = [...this.handlers, handler]
    this.forget()
  }

  /** Replaces the handlers of other nodes. `names` has the present names of handlers by former ones. */
  setOthers(others: OtherHandler[], names: Map<string, string>): void {
    this.others = others
    this.names = names
    this.forget()
  }

  of(e: Event): Route {
    const owed = e.subscriptions
    return owed.length > 0
      ? this.remembered(this.byOwed, owed.join('\n'), () => this.routeOfOwed(owed))
      : this.remembered(this.byType, e.type, () => this.routeOfType(e.type))
  }

  private forget(): void {
    this.byType = new Map()
    this.byOwed = new Map()
  }

  private remembered(known: Map<string, Route>, key: string, find: () => Route): Route {
    let route = known.get(key)
    if (!route) {
      if (known.size === mostRoutes) known.clear()
      known.set(key, (route = find()))
    }
    return route
  }

  private routeOfType(type: string): Route {
    const mine = this.handlers.filter((h) => h.patterns.some((p) => matches(p, type)))
    const others = this.others.filter((o) => !this.named(o.name) && o.patterns.some((p) => matches(p, type)))
    return { ...split(mine), elsewhere: [...new Set(others.map((o) => this.present(o.name)))], unknown: [] }
  }

  /** The route of an event that names its subscriptions: their handlers get it even if their patterns have changed since. */
  private routeOfOwed(owed: string[]): Route {
    const mine = new Set(owed.map((name) => this.named(name)))
    const missing = owed.filter((name) => !this.named(name))
    const isElsewhere = (name: string) => this.others.some((o) => this.present(o.name) === this.present(name))
    return {
      ...split(this.handlers.filter((h) => mine.has(h))),
      elsewhere: missing.filter(isElsewhere), unknown: missing.filter((name) => !isElsewhere(name)),
    }
  }

  private named(name: string): RegisteredHandler | undefined {
    return this.handlers.find((h) => this.present(h.name) === this.present(name) || h.formerly.includes(name))
  }

  private present(name: string): string {
    return this.names.get(name) ?? name
  }
}

function split(handlers: RegisteredHandler[]): Pick<Route, 'plain' | 'transactional'> {
  return { plain: handlers.filter((h) => !h.transactional), transactional: handlers.filter((h) => h.transactional) }
}
