export { networkOf } from './address.ts'
export { isKnownAddress, purgeKnownAddresses, rememberAddress } from './known-addresses.ts'
export { RULES, createLoginThrottle } from './login-throttle.ts'
export type { Admission, LoginThrottle, ThrottleRules } from './login-throttle.ts'
