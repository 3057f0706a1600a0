/**
 * Where generated messages and grpc-js meet: service definitions, typed handlers and a typed client from one generated
 * service description. The only place that serializes, so that no caller holds a Buffer of a message.
 */
import {
  ScalarType,
  fromBinary,
  toBinary,
  type DescMessage,
  type DescMethod,
  type DescService,
  type MessageInitShape,
  type MessageShape,
  create,
} from '@bufbuild/protobuf'
import {
  Client,
  Metadata,
  type CallOptions,
  type ChannelCredentials,
  type ClientDuplexStream,
  type ClientOptions,
  type ClientReadableStream,
  type MethodDefinition,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type ServiceError as GrpcError,
  type handleBidiStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
} from '@grpc/grpc-js'
import { SessionRequestSchema, SessionResponseSchema } from './gen/cluster/v1/worker_pb.ts'
import type { SessionRequest, SessionResponse } from './gen/cluster/v1/worker_pb.ts'
import { decodeRequest, decodeResponse, encodeRequest, encodeResponse } from './hot-messages.ts'

/** What a generated service looks like to the type system. */
export type GeneratedService = DescService & {
  method: Record<string, Pick<DescMethod, 'input' | 'output' | 'methodKind'>>
}

type Input<M extends { input: DescMessage }> = MessageShape<M['input']>
type Output<M extends { output: DescMessage }> = MessageShape<M['output']>

/** The handlers of a service for `Server.addService`, one per method, with the shapes of its messages. */
export type ServiceHandlers<S extends GeneratedService> = {
  [K in keyof S['method']]: S['method'][K]['methodKind'] extends 'unary'
    ? handleUnaryCall<Input<S['method'][K]>, Output<S['method'][K]>>
    : S['method'][K]['methodKind'] extends 'server_streaming'
      ? handleServerStreamingCall<Input<S['method'][K]>, Output<S['method'][K]>>
      : S['method'][K]['methodKind'] extends 'bidi_streaming'
        ? handleBidiStreamingCall<Input<S['method'][K]>, Output<S['method'][K]>>
        : never
}

/** Deadline, cancellation and metadata of one call. A unary call must have a deadline. */
export type UnaryCallOptions = { deadlineMs: number; metadata?: Metadata; signal?: AbortSignal }
export type StreamCallOptions = { deadlineMs?: number; metadata?: Metadata }

/** The client side of a service: promises for unary methods, grpc-js streams for the others. */
export type ServiceClient<S extends GeneratedService> = {
  [K in keyof S['method']]: S['method'][K]['methodKind'] extends 'unary'
    ? (request: MessageInitShape<S['method'][K]['input']>, options: UnaryCallOptions) => Promise<Output<S['method'][K]>>
    : S['method'][K]['methodKind'] extends 'server_streaming'
      ? (
          request: MessageInitShape<S['method'][K]['input']>,
          options?: StreamCallOptions,
        ) => ClientReadableStream<Output<S['method'][K]>>
      : S['method'][K]['methodKind'] extends 'bidi_streaming'
        ? (options?: StreamCallOptions) => ClientDuplexStream<Input<S['method'][K]>, Output<S['method'][K]>>
        : never
} & {
  /** Closes the channel; calls under way end as cancelled. */
  close(): void
}

export type { ServerDuplexStream, ServerUnaryCall, ServerWritableStream }

/** A service as grpc-js wants it, for `server.addService(serviceDefinition(WorkerService), handlers)`. */
export function serviceDefinition<S extends GeneratedService>(service: S): ServiceDefinition<ServiceHandlers<S>> {
  const definition = Object.fromEntries(service.methods.map((method) => [method.localName, methodDefinition(method)]))
  return definition as unknown as ServiceDefinition<ServiceHandlers<S>>
}

type AnyMessage = MessageShape<DescMessage>

const NO_BYTES = new Uint8Array(0)
/** Wire type of bytes. */
const LENGTH_DELIMITED = 2
/** Proto3 fields without `optional`: the empty value is not written (descriptor.proto, FeatureSet.FieldPresence). */
const IMPLICIT = 2

type HotCodec = {
  encode?: (message: AnyMessage) => Buffer | undefined
  decode?: (bytes: Buffer) => AnyMessage | undefined
}

/** Messages that are written or read by hand where that pays. */
const HOT: ReadonlyMap<string, HotCodec> = new Map([
  [
    SessionRequestSchema.typeName,
    { encode: (message: AnyMessage) => encodeRequest(message as SessionRequest), decode: decodeRequest },
  ],
  [
    SessionResponseSchema.typeName,
    { encode: (message: AnyMessage) => encodeResponse(message as SessionResponse), decode: decodeResponse },
  ],
])

function methodDefinition(method: DescMethod): MethodDefinition<AnyMessage, AnyMessage> {
  const write = (schema: DescMessage) => {
    const blob = schema.fields.length === 1 ? schema.fields[0] : undefined
    if (blob?.fieldKind === 'scalar' && blob.scalar === ScalarType.BYTES && blob.presence === IMPLICIT) {
      return (message: AnyMessage) =>
        frameBytes(blob.number, (message as unknown as Record<string, Uint8Array>)[blob.localName] ?? NO_BYTES)
    }
    const hot = HOT.get(schema.typeName)
    return (message: AnyMessage) => hot?.encode?.(message) ?? asBuffer(toBinary(schema, message))
  }
  const read = (schema: DescMessage) => {
    const hot = HOT.get(schema.typeName)
    return (bytes: Buffer) => hot?.decode?.(bytes) ?? fromBinary(schema, bytes)
  }
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming',
    responseStream: method.methodKind === 'server_streaming' || method.methodKind === 'bidi_streaming',
    requestSerialize: write(method.input),
    requestDeserialize: read(method.input),
    responseSerialize: write(method.output),
    responseDeserialize: read(method.output),
    originalName: method.name,
  }
}

/**
 * A message of bytes alone, as `toBinary` writes it, with one copy instead of three: parts of modules are most of what
 * goes through here (Protocol Buffers, "Encoding": tag, length, bytes).
 */
function frameBytes(fieldNumber: number, bytes: Uint8Array): Buffer {
  if (bytes.length === 0) return Buffer.alloc(0)
  const head = [...varint((fieldNumber << 3) | LENGTH_DELIMITED), ...varint(bytes.length)]
  const framed = Buffer.allocUnsafe(head.length + bytes.length)
  framed.set(head)
  framed.set(bytes, head.length)
  return framed
}

function varint(value: number): number[] {
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes.push((rest & 0x7f) | 0x80)
  bytes.push(rest)
  return bytes
}

/** A view of the same bytes: grpc-js asks for a Buffer, protobuf-es gives a Uint8Array. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * A typed client on a channel of its own. Nothing is dialled before the first call. Errors are grpc-js ServiceErrors
 * with `code`; the caller decides what they mean.
 */
export function createServiceClient<S extends GeneratedService>(
  service: S,
  address: string,
  credentials: ChannelCredentials,
  options: Partial<ClientOptions> = {},
): ServiceClient<S> {
  const client = new Client(address, credentials, options)
  const entries = service.methods.map((method) => [method.localName, callOf(client, method)] as const)
  return { ...Object.fromEntries(entries), close: () => client.close() } as unknown as ServiceClient<S>
}

function callOf(client: Client, method: DescMethod) {
  const definition = methodDefinition(method)
  const { path, requestSerialize, responseDeserialize } = definition
  switch (method.methodKind) {
    case 'unary':
      return (request: MessageInitShape<DescMessage>, options: UnaryCallOptions) =>
        new Promise<AnyMessage>((resolve, reject) => {
          const onAbort = () => call.cancel()
          const call = client.makeUnaryRequest(
            path,
            requestSerialize,
            responseDeserialize,
            create(method.input, request),
            options.metadata ?? new Metadata(),
            callOptions(options),
            (error: GrpcError | null, response?: AnyMessage) => {
              options.signal?.removeEventListener('abort', onAbort)
              if (error !== null) reject(error)
              else resolve(response as AnyMessage)
            },
          )
          if (options.signal?.aborted) call.cancel()
          else options.signal?.addEventListener('abort', onAbort, { once: true })
        })
    case 'server_streaming':
      return (request: MessageInitShape<DescMessage>, options: StreamCallOptions = {}) =>
        client.makeServerStreamRequest(
          path,
          requestSerialize,
          responseDeserialize,
          create(method.input, request),
          options.metadata ?? new Metadata(),
          callOptions(options),
        )
    case 'bidi_streaming':
      return (options: StreamCallOptions = {}) =>
        client.makeBidiStreamRequest(
          path,
          requestSerialize,
          responseDeserialize,
          options.metadata ?? new Metadata(),
          callOptions(options),
        )
    case 'client_streaming':
      throw new Error(`${path}: the protocol has no client streaming methods`)
  }
}

function callOptions(options: { deadlineMs?: number }): CallOptions {
  return options.deadlineMs === undefined ? {} : { deadline: Date.now() + options.deadlineMs }
}
