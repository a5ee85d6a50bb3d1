import assert from 'node:assert/strict'
import test, { after } from 'node:test'
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider, InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { Snooze } from '../src/index.js'
import { open, run, until } from './world.js'

const exporter = new InMemorySpanExporter()
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }))
after(() => context.disable())
const tracer = trace.getTracer('test')

const spans = (namespace: string, name: string): ReadableSpan[] =>
  exporter.getFinishedSpans().filter((s) => s.name === name && s.attributes['messaging.posthorn.namespace'] === namespace)

test('a trace goes from the publisher to the handler, and on', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning' }).handleTx('h', 'order.*', async (tx) => {
    await tracer.startActiveSpan('inside', async (span) => {
      await ph.publish(tx, { type: 'noted', stream: 'notes' })
      span.end()
    })
  })
  run(ph)
  const id = await tracer.startActiveSpan('request', async (span) => {
    try {
      return await ph.publish(ph.pool, { type: 'order.placed', payload: { n: 1 } })
    } finally {
      span.end()
    }
  })
  await until('the spans have ended', () => spans(ph.namespace, 'settle default').length > 0 && spans(ph.namespace, 'process default').length > 0)
  const [published] = spans(ph.namespace, 'publish default')
  const [processed] = spans(ph.namespace, 'process default')
  const [noted] = spans(ph.namespace, 'publish notes')
  const request = exporter.getFinishedSpans().find((s) => s.name === 'request')!
  assert.equal(published!.kind, SpanKind.PRODUCER)
  assert.equal(published!.parentSpanContext!.spanId, request.spanContext().spanId)
  assert.deepEqual(published!.attributes, {
    'messaging.system': 'posthorn', 'messaging.operation.name': 'publish', 'messaging.operation.type': 'send', 'messaging.posthorn.namespace': ph.namespace,
    'messaging.client.id': ph.nodeId, 'messaging.destination.name': 'default', 'messaging.message.id': String(id),
  })
  assert.equal(processed!.kind, SpanKind.CONSUMER)
  assert.equal(processed!.parentSpanContext!.spanId, published!.spanContext().spanId)
  assert.equal(processed!.links[0]!.context.spanId, published!.spanContext().spanId)
  assert.deepEqual(processed!.attributes, {
    'messaging.system': 'posthorn', 'messaging.operation.name': 'process', 'messaging.operation.type': 'process', 'messaging.posthorn.namespace': ph.namespace,
    'messaging.client.id': ph.nodeId, 'messaging.destination.name': 'default', 'messaging.message.id': String(id), 'messaging.consumer.group.name': 'g',
    'messaging.destination.subscription.name': 'h', 'messaging.message.body.size': 7, 'messaging.posthorn.event.type': 'order.placed',
    'messaging.posthorn.delivery': 1,
  })
  const inside = exporter.getFinishedSpans().find((s) => s.name === 'inside')!
  assert.equal(inside.parentSpanContext!.spanId, processed!.spanContext().spanId)
  assert.equal(noted!.parentSpanContext!.spanId, inside.spanContext().spanId)
  assert.equal(noted!.spanContext().traceId, request.spanContext().traceId)
  assert.equal(spans(ph.namespace, 'settle default')[0]!.kind, SpanKind.CLIENT)
  const events = []
  for await (const e of ph.read()) events.push(e)
  assert.equal(events[0]!.metadata['traceparent'], `00-${published!.spanContext().traceId}-${published!.spanContext().spanId}-01`)
  ph.inTraceOf(events[0]!, () => assert.equal(trace.getSpanContext(context.active())!.spanId, published!.spanContext().spanId))
})

test('the span of a batch has links to its events, and a failure is marked', async (t) => {
  const ph = await open(t)
  ph.group('g', { start: 'beginning', attempts: 1 }).handleBatch('h', '>', () => {
    throw new Error('no')
  })
  const ids = await ph.publish(ph.pool, [{ type: 'a' }, { type: 'b' }])
  run(ph)
  await until('the span has ended', () => spans(ph.namespace, 'process default').length === 1)
  const [span] = spans(ph.namespace, 'process default')
  assert.deepEqual(span!.links.map((l) => l.attributes!['messaging.message.id']), ids.map(String))
  assert.equal(span!.attributes['messaging.batch.message_count'], 2)
  assert.equal(span!.attributes['error.type'], '_OTHER')
  assert.deepEqual(span!.status, { code: SpanStatusCode.ERROR, message: 'no' })
})

test('jobs continue the trace that enqueued them', async (t) => {
  const ph = await open(t)
  ph.work(['a'], (job) => {
    if (job.attempt === 1) throw new Snooze(1)
  })
  await ph.enqueue(ph.pool, { title: 'Send mail', tags: ['a'] })
  run(ph)
  await until('the spans have ended', () => spans(ph.namespace, 'process jobs').length === 2)
  const [first, second] = spans(ph.namespace, 'process jobs')
  const [enqueued] = spans(ph.namespace, 'enqueue')
  assert.equal(first!.parentSpanContext!.spanId, enqueued!.spanContext().spanId)
  assert.equal(first!.attributes['messaging.posthorn.snoozed'], true)
  assert.equal(second!.attributes['messaging.posthorn.event.type'], 'Send mail')
  assert.equal(propagation.fields().length, 0) // so the client has written the trace context by itself
})

test('a message that has a trace context keeps it', async (t) => {
  const ph = await open(t)
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  await ph.publish(ph.pool, { type: 'x', metadata: { traceparent } })
  for await (const e of ph.read()) assert.equal(e.metadata['traceparent'], traceparent)
  assert.equal(spans(ph.namespace, 'publish default')[0]!.links[0]!.context.spanId, 'b7ad6b7169203331')
})
