/**
 * The codes of each kind of error, per protocol. No other file contains an error code of HTTP, gRPC, MQTT or CoAP or an exit
 * code: adapters look their codes up here.
 */
import type { ErrorKind } from './service-error.ts'

export type ProtocolStatus = {
  /** RFC 9110 status code. */
  http: number
  /** gRPC status code number. */
  grpc: number
  /** CONNACK return code of MQTT 3.1.1 (section 3.2.2.3); undefined when no code fits. */
  mqtt3Connack: number | undefined
  /** Reason code of MQTT 5.0 (section 2.4). */
  mqtt5: number
  /** CoAP response code, class.detail (RFC 7252 section 5.9, RFC 8132, RFC 8516). */
  coap: `${4 | 5}.${string}`
  /** Exit code of the command-line client. */
  exit: number
}

export const PROTOCOL_STATUS = {
  malformed: { http: 400, grpc: 3, mqtt3Connack: undefined, mqtt5: 0x99, coap: '4.00', exit: 1 },
  unauthenticated: { http: 401, grpc: 16, mqtt3Connack: 4, mqtt5: 0x86, coap: '4.01', exit: 1 },
  forbidden: { http: 403, grpc: 7, mqtt3Connack: 5, mqtt5: 0x87, coap: '4.03', exit: 1 },
  not_found: { http: 404, grpc: 5, mqtt3Connack: undefined, mqtt5: 0x90, coap: '4.04', exit: 1 },
  gone: { http: 410, grpc: 11, mqtt3Connack: undefined, mqtt5: 0x90, coap: '4.04', exit: 1 },
  method_not_allowed: { http: 405, grpc: 12, mqtt3Connack: undefined, mqtt5: 0x83, coap: '4.05', exit: 1 },
  conflict: { http: 409, grpc: 6, mqtt3Connack: undefined, mqtt5: 0x83, coap: '4.09', exit: 1 },
  invalid_state: { http: 409, grpc: 9, mqtt3Connack: undefined, mqtt5: 0x83, coap: '4.09', exit: 1 },
  precondition_failed: { http: 412, grpc: 10, mqtt3Connack: undefined, mqtt5: 0x83, coap: '4.12', exit: 1 },
  unprocessable: { http: 422, grpc: 9, mqtt3Connack: undefined, mqtt5: 0x83, coap: '4.22', exit: 1 },
  too_large: { http: 413, grpc: 8, mqtt3Connack: undefined, mqtt5: 0x95, coap: '4.13', exit: 1 },
  unsupported_media_type: { http: 415, grpc: 3, mqtt3Connack: undefined, mqtt5: 0x99, coap: '4.15', exit: 1 },
  quota_exceeded: { http: 422, grpc: 8, mqtt3Connack: 3, mqtt5: 0x97, coap: '4.29', exit: 1 },
  rate_limited: { http: 429, grpc: 8, mqtt3Connack: 3, mqtt5: 0x96, coap: '4.29', exit: 1 },
  unavailable: { http: 503, grpc: 14, mqtt3Connack: 3, mqtt5: 0x88, coap: '5.03', exit: 1 },
  timeout: { http: 504, grpc: 4, mqtt3Connack: 3, mqtt5: 0x80, coap: '5.04', exit: 1 },
  internal: { http: 500, grpc: 13, mqtt3Connack: 3, mqtt5: 0x80, coap: '5.00', exit: 1 },
} as const satisfies Record<ErrorKind, ProtocolStatus>

/** A program was called with invalid arguments. */
export const EXIT_WRONG_USAGE = 2
/** A program failed; one line on stderr gives the reason and advice. */
export const EXIT_FAILED = 1
