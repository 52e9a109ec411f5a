package hbasetest

import (
	_ "embed" // for the files of testdata
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

//go:embed testdata/log4j.properties
var log4j []byte

// properties are settings of Hadoop and HBase, as their XML files hold them.
type properties map[string]string

// write makes a configuration file.
func (p properties) write(path string) error {
	type property struct {
		Name  string `xml:"name"`
		Value string `xml:"value"`
	}
	file := struct {
		XMLName    xml.Name   `xml:"configuration"`
		Properties []property `xml:"property"`
	}{}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		file.Properties = append(file.Properties, property{name, p[name]})
	}
	text, err := xml.MarshalIndent(file, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o644)
}

// commonSite is the part of hbase-site.xml that both forms of a cluster share.
func commonSite(dir string, p ports) properties {
	return properties{
		"hbase.tmp.dir": filepath.Join(dir, "tmp"),

		"hbase.zookeeper.quorum":                     "127.0.0.1",
		"hbase.zookeeper.property.clientPort":        fmt.Sprint(p.zooKeeper),
		"hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
		"hbase.zookeeper.property.dataDir":           filepath.Join(dir, "zookeeper"),
		"zookeeper.znode.parent":                     znode,
		"zookeeper.session.timeout":                  "10000",
		// A session lasts from 2 to 20 ticks unless told otherwise; these let a test choose freely.
		"hbase.zookeeper.property.tickTime":          "500",
		"hbase.zookeeper.property.minSessionTimeout": "1000",
		"hbase.zookeeper.property.maxSessionTimeout": "120000",

		"hbase.master.hostname":                  host,
		"hbase.master.ipc.address":               "127.0.0.1",
		"hbase.master.port":                      fmt.Sprint(p.master),
		"hbase.regionserver.hostname":            host,
		"hbase.regionserver.ipc.address":         "127.0.0.1",
		"hbase.regionserver.port":                fmt.Sprint(p.regionServers[0]),
		"hbase.master.info.port":                 "-1", // The web pages are not among the jars.
		"hbase.regionserver.info.port":           "-1",
		"hbase.unsafe.stream.capability.enforce": "true",

		// Do not wait for region servers that will not come.
		"hbase.master.wait.on.regionservers.maxtostart": fmt.Sprint(len(p.regionServers)),
	}
}

// standaloneSite adds what makes one process of it, on the local file system. There a flush is none, so that a kill of
// the process loses what it has acknowledged last.
func standaloneSite(dir string, p ports) properties {
	site := commonSite(dir, p)
	maps.Copy(site, properties{
		"hbase.rootdir":                          "file://" + filepath.Join(dir, "hbase"),
		"hbase.cluster.distributed":              "false",
		"hbase.unsafe.stream.capability.enforce": "false",
		"hbase.wal.provider":                     "filesystem",
	})
	return site
}

// distributedSite adds what makes processes of it that keep their data in HDFS.
func distributedSite(dir string, p ports) properties {
	site := commonSite(dir, p)
	maps.Copy(site, properties{
		"hbase.rootdir":             "hdfs://" + loopback(p.nameNode) + "/hbase",
		"hbase.cluster.distributed": "true",
		// The log of a killed region server is taken over this soon, or else after the default of four seconds.
		"hbase.lease.recovery.first.pause": "1500",
	})
	return site
}

// coreSite is core-site.xml.
func coreSite(dir string, p ports) properties {
	return properties{
		"fs.defaultFS":   "hdfs://" + loopback(p.nameNode),
		"hadoop.tmp.dir": filepath.Join(dir, "tmp"),
	}
}

// hdfsSite is hdfs-site.xml: one copy of each block, which survives the death of any process but not of the machine.
func hdfsSite(dir string, p ports) properties {
	return properties{
		"dfs.replication":                          "1",
		"dfs.namenode.name.dir":                    "file://" + filepath.Join(dir, "namenode"),
		"dfs.namenode.http-address":                loopback(p.nameNodeHTTP),
		"dfs.datanode.data.dir":                    "file://" + filepath.Join(dir, "datanode"),
		"dfs.datanode.address":                     loopback(p.dataNode),
		"dfs.datanode.http.address":                loopback(p.dataNodeHTTP),
		"dfs.datanode.ipc.address":                 loopback(p.dataNodeIPC),
		"dfs.permissions.enabled":                  "false",
		"dfs.namenode.edits.noeditlogchannelflush": "true", // Processes are killed here, machines are not.
		"dfs.heartbeat.interval":                   "1",    // Recovering a killed writer's block takes a heartbeat.
	}
}

// writeConf makes the folder that comes first in the class path of every process.
func writeConf(conf string, files map[string]properties) error {
	// The servers of HDFS do not start without the folders of their web pages, empty as they may be.
	for _, pages := range []string{"hdfs", "datanode"} {
		if err := os.MkdirAll(filepath.Join(conf, "webapps", pages), 0o755); err != nil {
			return err
		}
	}
	for name, p := range files {
		if err := p.write(filepath.Join(conf, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(conf, "log4j.properties"), log4j, 0o644)
}
