export { GuestHttp } from './guest-http.ts'
export type { GuestHttpOptions } from './guest-http.ts'
