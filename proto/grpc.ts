/**
 * Connects generated messages with grpc-js: service definitions, typed handlers and a typed client from one generated
 * service description. The only place that serializes messages.
 */
import {
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
  type MethodDefinition,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError as GrpcError,
  type handleBidiStreamingCall,
  type handleUnaryCall,
} from '@grpc/grpc-js'
import { SessionRequestSchema, SessionResponseSchema } from './gen/cluster/v1/worker_pb.ts'
import type { SessionRequest, SessionResponse } from './gen/cluster/v1/worker_pb.ts'
import { readAtOnce, readInTurns, writeInTurns } from './large-messages.ts'

/** The type of a generated service. */
export type GeneratedService = DescService & {
  method: Record<string, Pick<DescMethod, 'input' | 'output' | 'methodKind'>>
}

type Input<M extends { input: DescMessage }> = MessageShape<M['input']>
type Output<M extends { output: DescMessage }> = MessageShape<M['output']>

/** The handlers of a service for `Server.addService`, one per method, with the shapes of its messages. */
export type ServiceHandlers<S extends GeneratedService> = {
  [K in keyof S['method']]: S['method'][K]['methodKind'] extends 'unary'
    ? handleUnaryCall<Input<S['method'][K]>, Output<S['method'][K]>>
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
    : S['method'][K]['methodKind'] extends 'bidi_streaming'
      ? (options?: StreamCallOptions) => ClientDuplexStream<Input<S['method'][K]>, Output<S['method'][K]>>
      : never
} & {
  /** Closes the channel; active calls end as cancelled. */
  close(): void
}

export type { ServerDuplexStream, ServerUnaryCall }

/** The grpc-js definition of a service, for `server.addService(serviceDefinition(WorkerService), handlers)`. */
export function serviceDefinition<S extends GeneratedService>(service: S): ServiceDefinition<ServiceHandlers<S>> {
  const definition = Object.fromEntries(service.methods.map((method) => [method.localName, methodDefinition(method)]))
  return definition as unknown as ServiceDefinition<ServiceHandlers<S>>
}

type AnyMessage = MessageShape<DescMessage>

/**
 * A serialized message of a session: a request that is decoded incrementally, or a response that was encoded
 * incrementally.
 */
class Encoded {
  readonly bytes: Buffer

  constructor(bytes: Buffer) {
    this.bytes = bytes
  }
}

/**
 * The messages of a worker on its session, in order; a large message is decoded incrementally. Throws
 * `UnreadableMessage`.
 */
export async function* sessionRequests(
  call: ServerDuplexStream<SessionRequest, SessionResponse>,
): AsyncGenerator<SessionRequest, void, void> {
  // A worker that half-closes still needs the status: the iterator must not destroy the stream.
  const requests = call.iterator({ destroyOnReturn: false }) as AsyncIterable<unknown>
  for await (const request of requests) yield await readInTurns(SessionRequestSchema, (request as Encoded).bytes)
}

/** A response of a session with very many fields, encoded incrementally from its parts. */
export async function largeResponse(
  parts: Iterable<MessageInitShape<typeof SessionResponseSchema>>,
): Promise<SessionResponse> {
  return new Encoded(await writeInTurns(SessionResponseSchema, parts)) as unknown as SessionResponse
}

function methodDefinition(method: DescMethod): MethodDefinition<AnyMessage, AnyMessage> {
  const write = (schema: DescMessage) => (message: AnyMessage | Encoded) =>
    message instanceof Encoded ? message.bytes : asBuffer(toBinary(schema, message))
  const read = (schema: DescMessage) => (bytes: Buffer) => fromBinary(schema, bytes)
  /** A caller can be malicious: the fields are counted before they are decoded. */
  const readRequest = (schema: DescMessage) =>
    schema.typeName === SessionRequestSchema.typeName
      ? (bytes: Buffer) => new Encoded(bytes) as unknown as AnyMessage
      : (bytes: Buffer): AnyMessage => readAtOnce(schema, bytes)
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === 'bidi_streaming',
    responseStream: method.methodKind === 'bidi_streaming',
    requestSerialize: write(method.input),
    requestDeserialize: readRequest(method.input),
    responseSerialize: write(method.output),
    responseDeserialize: read(method.output),
    originalName: method.name,
  }
}

/** A view of the same bytes: grpc-js requires a Buffer, protobuf-es returns a Uint8Array. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * A typed client with a channel of its own, which connects at the first call. Errors are grpc-js ServiceErrors with
 * `code`; the caller interprets them.
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
    case 'bidi_streaming':
      return (options: StreamCallOptions = {}) =>
        client.makeBidiStreamRequest(
          path,
          requestSerialize,
          responseDeserialize,
          options.metadata ?? new Metadata(),
          callOptions(options),
        )
    case 'server_streaming':
    case 'client_streaming':
      throw new Error(`${path}: methods that stream in one direction are not supported`)
  }
}

function callOptions(options: { deadlineMs?: number }): CallOptions {
  return options.deadlineMs === undefined ? {} : { deadline: Date.now() + options.deadlineMs }
}
