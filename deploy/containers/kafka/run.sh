#!/bin/sh
# KAFKA_SOME_NAME=value becomes some.name=value of server.properties; CLUSTER_ID names the storage. Formats the
# storage once, then becomes the broker.
set -eu

env | awk '
  /^KAFKA_/ && !/^KAFKA_(HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS)=/ {
    at = index($0, "=")
    name = tolower(substr($0, 7, at - 7))
    gsub("_", ".", name)
    print name "=" substr($0, at + 1)
  }' >/tmp/server.properties

java="java ${KAFKA_HEAP_OPTS:--Xmx384m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties"
export CLASSPATH='/opt/kafka/jars/*'

$java kafka.tools.StorageTool format --ignore-formatted -t "${CLUSTER_ID:?}" -c /tmp/server.properties
exec $java kafka.Kafka /tmp/server.properties
