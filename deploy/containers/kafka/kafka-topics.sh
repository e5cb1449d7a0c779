#!/bin/sh
# The one tool of the official image that compose's health check calls.
export CLASSPATH='/opt/kafka/jars/*'
exec java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 org.apache.kafka.tools.TopicCommand "$@"
