/** Addresses that other machines do not reach. */
const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|localhost)$/

/** Whether a listener on this address, as SKEIN_HOST names it, is reached from this machine alone. */
export const isLoopbackHost = (host: string): boolean => LOOPBACK.test(host)
