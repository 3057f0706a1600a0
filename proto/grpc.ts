/**
 * Where generated messages and grpc-js meet: service definitions, typed handlers and a typed client from one generated
 * service description. The only place that serializes, so that no caller holds a Buffer of a message.
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
import { SessionRequestSchema } from './gen/cluster/v1/worker_pb.ts'
import type { SessionRequest, SessionResponse } from './gen/cluster/v1/worker_pb.ts'
import { MAX_FIELDS, MAX_FIELDS_AT_ONCE, countFields, readInTurns } from './large-messages.ts'

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

/** A message of a session that is too large to be read at once. */
class LargeRequest {
  readonly bytes: Buffer

  constructor(bytes: Buffer) {
    this.bytes = bytes
  }
}

/** What a worker says on its session, in order; a large message is read in turns. Throws for one that cannot be read. */
export async function* sessionRequests(
  call: ServerDuplexStream<SessionRequest, SessionResponse>,
): AsyncGenerator<SessionRequest, void, void> {
  for await (const request of call as AsyncIterable<SessionRequest | LargeRequest>) {
    yield request instanceof LargeRequest ? await readInTurns(SessionRequestSchema, request.bytes) : request
  }
}

function methodDefinition(method: DescMethod): MethodDefinition<AnyMessage, AnyMessage> {
  const write = (schema: DescMessage) => (message: AnyMessage) => asBuffer(toBinary(schema, message))
  const read = (schema: DescMessage) => (bytes: Buffer) => fromBinary(schema, bytes)
  /** Whoever asks may mean harm, so that fields are counted before they are read. */
  const readRequest = (schema: DescMessage) => {
    const isSession = schema.typeName === SessionRequestSchema.typeName
    const maxFields = isSession ? MAX_FIELDS : MAX_FIELDS_AT_ONCE
    return (bytes: Buffer): AnyMessage => {
      const isLarge = countFields(schema, bytes, maxFields) > MAX_FIELDS_AT_ONCE
      return isLarge ? (new LargeRequest(bytes) as unknown as AnyMessage) : fromBinary(schema, bytes)
    }
  }
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === 'client_streaming' || method.methodKind === 'bidi_streaming',
    responseStream: method.methodKind === 'server_streaming' || method.methodKind === 'bidi_streaming',
    requestSerialize: write(method.input),
    requestDeserialize: readRequest(method.input),
    responseSerialize: write(method.output),
    responseDeserialize: read(method.output),
    originalName: method.name,
  }
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
