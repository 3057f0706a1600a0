export { openSecret, sealSecret, secretMac } from './client-secrets.ts'
