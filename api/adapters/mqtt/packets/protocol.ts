/** The version of the protocol, and the quality of service. */

/** Protocol level: 3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0. */
export type ProtocolVersion = 3 | 4 | 5

export type Qos = 0 | 1 | 2
