import type * as otel from '@opentelemetry/api'
import { Permanent, PosthornError, RetryAfter, Snooze, messageOf, sqlState } from './errors.js'

/** What a span says about an event or a job. */
export interface Traced {
  id: bigint
  stream: string
  type: string
  payloadText: string
  metadataText: string
  delivery: number
}

interface Operation {
  name: string
  type: string
  kind: 'PRODUCER' | 'CONSUMER' | 'CLIENT'
}

const operations = {
  publish: { name: 'publish', type: 'send', kind: 'PRODUCER' },
  enqueue: { name: 'enqueue', type: 'send', kind: 'PRODUCER' },
  process: { name: 'process', type: 'process', kind: 'CONSUMER' },
  settle: { name: 'settle', type: 'settle', kind: 'CLIENT' },
  fetch: { name: 'fetch', type: 'receive', kind: 'CLIENT' },
} satisfies Record<string, Operation>

/** An operation on events of a group. */
export interface About {
  operation: 'process' | 'settle' | 'fetch'
  group: string
  handler?: string
  batch: boolean // a batch may have one event
}

const maxLinks = 127 // SDKs keep 128, and one is for the span of the caller
const recheck = 1000

/** Writes spans, if the program has OpenTelemetry and an SDK that records them. */
export class Telemetry {
  private withoutSDK = 0 // when no SDK recorded a span; 0: one did

  // Private: so no declaration names a type of OpenTelemetry, which a program may not have.
  private constructor(
    private readonly api: typeof otel | undefined,
    private readonly namespace: string,
    private readonly node: string,
  ) {}

  /** Loads the API of OpenTelemetry, if it is installed. */
  static async load(namespace: string, node: string): Promise<Telemetry> {
    const api = await import('@opentelemetry/api').catch(() => undefined)
    return new Telemetry(api, namespace, node)
  }

  /** Whether spans would be recorded, as far as is known. */
  get isOn(): boolean {
    if (!this.api) return false
    if (this.withoutSDK === 0) return true
    if (performance.now() - this.withoutSDK < recheck) return false
    this.withoutSDK = 0 // a program may set its SDK later
    return true
  }

  /** Calls a function within a span for messages that it publishes. The span is their origin. */
  async send<T extends bigint[]>(what: 'publish' | 'enqueue', streams: string[], run: () => Promise<T>): Promise<T> {
    if (!this.isOn) return run()
    const stream = what === 'publish' ? common(streams) : ''
    const attributes = this.attributes(operations[what], stream)
    if (streams.length !== 1) attributes['messaging.batch.message_count'] = streams.length
    const started = this.start(operations[what], stream, { attributes }, this.api!.context.active())
    if (!started) return run()
    return this.within(started, run, (ids) => {
      if (ids.length === 1) started.span.setAttribute('messaging.message.id', String(ids[0]))
    })
  }

  /** Calls a function within a span about events. */
  async about<T>(about: About, events: readonly Traced[], run: () => Promise<T>): Promise<T> {
    if (!this.isOn || events.length === 0) return run()
    const api = this.api!
    const operation = operations[about.operation]
    const attributes = this.attributes(operation, common(events.map((e) => e.stream)))
    attributes['messaging.consumer.group.name'] = about.group
    if (about.handler !== undefined) attributes['messaging.destination.subscription.name'] = about.handler
    const [e] = events
    if (about.batch) attributes['messaging.batch.message_count'] = events.length
    else {
      attributes['messaging.message.id'] = String(e!.id)
      attributes['messaging.message.body.size'] = Buffer.byteLength(e!.payloadText)
      attributes['messaging.posthorn.event.type'] = e!.type
      attributes['messaging.posthorn.delivery'] = e!.delivery
    }
    const links = this.links(about.batch, events)
    const caller = api.trace.getSpanContext(api.context.active())
    let parent = api.context.active()
    if (about.operation !== 'fetch') { // the span around run is only linked: its trace would contain all work
      parent = api.trace.deleteSpan(parent)
      if (!about.batch && links[0]) parent = api.trace.setSpanContext(parent, links[0].context)
      if (caller) links.push({ context: caller })
    }
    const started = this.start(operation, common(events.map((event) => event.stream)), { attributes, links }, parent)
    return started ? this.within(started, run) : run()
  }

  /** Calls a function in the trace of the publisher of an event. */
  continue<T>(metadataText: string, run: () => T): T {
    const origin = this.api && this.extract(JSON.parse(metadataText))
    if (!this.api || !origin) return run()
    return this.api.context.with(this.api.trace.setSpanContext(this.api.context.active(), origin), run)
  }

  /** The trace context of the caller, as metadata of messages. */
  origin(metadata: Record<string, unknown> | undefined): Record<string, string> {
    if (!this.api) return {}
    const { context, propagation, trace } = this.api
    const origin: Record<string, string> = {}
    propagation.inject(context.active(), origin)
    const span = trace.getSpanContext(context.active())
    if (propagation.fields().length === 0 && span && this.api.isSpanContextValid(span)) {
      origin['traceparent'] = `00-${span.traceId}-${span.spanId}-${span.traceFlags.toString(16).padStart(2, '0')}`
      const state = span.traceState?.serialize()
      if (state) origin['tracestate'] = state
    }
    if (!metadata || !this.fields().some((field) => field in metadata)) return origin
    const given = this.extract(metadata) // the message has an origin already
    if (given) trace.getActiveSpan()?.addLink?.({ context: given })
    return {}
  }

  private fields(): string[] {
    const fields = this.api!.propagation.fields()
    return fields.length > 0 ? fields : ['traceparent', 'tracestate']
  }

  private extract(metadata: Record<string, unknown>): otel.SpanContext | undefined {
    const { propagation, trace, ROOT_CONTEXT } = this.api!
    const found = trace.getSpanContext(propagation.extract(ROOT_CONTEXT, metadata))
    if (found) return found
    const [, traceId, spanId, flags] = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/.exec(String(metadata['traceparent'])) ?? []
    if (!traceId || !spanId || !flags || propagation.fields().length > 0) return undefined
    return { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true }
  }

  private links(batch: boolean, events: readonly Traced[]): otel.Link[] {
    const links: otel.Link[] = []
    const fields = this.fields()
    for (const e of events) {
      if (links.length === maxLinks) break
      if (!fields.some((field) => e.metadataText.includes(field))) continue
      const context = this.extract(JSON.parse(e.metadataText))
      if (context) links.push({ context, attributes: batch ? { 'messaging.message.id': String(e.id) } : {} })
    }
    return links
  }

  private attributes(operation: Operation, stream: string): otel.Attributes {
    const attributes: otel.Attributes = {
      'messaging.system': 'posthorn', 'messaging.operation.name': operation.name, 'messaging.operation.type': operation.type,
      'messaging.posthorn.namespace': this.namespace, 'messaging.client.id': this.node,
    }
    if (stream) attributes['messaging.destination.name'] = stream
    return attributes
  }

  /** Starts a span; undefined if no SDK records it. */
  private start(operation: Operation, stream: string, options: otel.SpanOptions, parent: otel.Context): { span: otel.Span; context: otel.Context } | undefined {
    const api = this.api!
    const tracer = api.trace.getTracer('github.com/posthorn/posthorn')
    const span = tracer.startSpan(stream ? `${operation.name} ${stream}` : operation.name, { ...options, kind: api.SpanKind[operation.kind] }, parent)
    const own = span.spanContext()
    if (!api.isSpanContextValid(own) || own.spanId === api.trace.getSpanContext(parent)?.spanId) {
      this.withoutSDK = performance.now()
      return undefined
    }
    return { span, context: api.trace.setSpan(parent, span) }
  }

  private async within<T>(started: { span: otel.Span; context: otel.Context }, run: () => Promise<T>, done?: (result: T) => void): Promise<T> {
    const { span, context } = started
    try {
      const result = await this.api!.context.with(context, run)
      done?.(result)
      return result
    } catch (error) {
      if (error instanceof Snooze) span.setAttribute('messaging.posthorn.snoozed', true)
      else {
        span.setAttribute('error.type', errorType(error))
        span.setStatus({ code: this.api!.SpanStatusCode.ERROR, message: messageOf(error) })
      }
      throw error
    } finally {
      span.end()
    }
  }
}

function common(streams: string[]): string {
  return streams.every((stream) => stream === streams[0]) ? (streams[0] ?? '') : ''
}

function errorType(error: unknown): string {
  if (error instanceof PosthornError) return error.code
  const cause = error instanceof Permanent || error instanceof RetryAfter ? error.cause : error
  if (cause instanceof PosthornError) return cause.code
  if (cause instanceof Error && cause.name === 'AbortError') return 'canceled'
  return sqlState(error) ?? (error instanceof Permanent ? 'permanent' : '_OTHER')
}
